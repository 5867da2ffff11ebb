"""From runs to the rows of the main table: one row a method (and variant), averaged over seeds."""

import json
import math
from dataclasses import dataclass
from functools import cached_property

from rltok_core.report.collect import Collection, Result
from rltok_core.report.published import Published, family, published
from rltok_core.report.statistics import (
    Estimate,
    Paired,
    Resampled,
    document_bootstrap,
    estimate,
    paired,
)

BASELINE = "uniform"
OFF_TARGET = 0.1  # a realised rate this far (relative) from the target is flagged (K17)


@dataclass(frozen=True)
class Row:
    """All seeds of one method on one corpus at one size.

    variant names what differs from other rows of the same data, size and label ("" if none does).
    """

    results: list[Result]
    variant: str

    @cached_property
    def done(self) -> list[Result]:
        return [result for result in self.results if result.complete]

    @property
    def run(self):
        return self.results[0].run

    @property
    def data(self) -> str:
        return self.run.data.name

    @property
    def family(self) -> str:
        return family(self.run.data)

    @property
    def size(self) -> str:
        return self.run.model.size

    @property
    def label(self) -> str:
        return self.run.estimator.label

    @property
    def name(self) -> str:
        """The label, and the variant where the label alone isn't one row: styles go by it."""
        return f"{self.label} ({self.variant})" if self.variant else self.label

    @property
    def seeds(self) -> list[int]:
        return sorted(result.run.seed for result in self.done)

    def values(self, *path: str) -> list[float]:
        """The finite numbers at measured[path[0]][path[1]]... of the runs that have one."""
        return list(self.by_seed(*path).values())

    def by_seed(self, *path: str) -> dict[int, float]:
        """The same by seed."""
        found = {}
        for result in self.done:
            value = result.measured
            for key in path:
                value = value.get(key) if isinstance(value, dict) else None
            if isinstance(value, (int, float)) and math.isfinite(value):
                found[result.run.seed] = float(value)
        return found

    def mean(self, *path: str) -> float | None:
        found = estimate(self.values(*path))
        return found.mean if found else None

    def boundary_mean(self, *path: str) -> float | None:
        """mean, of what boundaries do: None without a token level, where they do nothing."""
        return self.mean(*path) if self.has_tokens else None

    @property
    def bpb(self) -> Estimate | None:
        return estimate(self.values("bpb"))

    @property
    def causal(self) -> bool | None:
        """None where no run says."""
        known = [r.evaluation["causal"] for r in self.done if "causal" in r.evaluation]
        return all(known) if known else None

    @property
    def leak(self) -> float | None:
        """The leak audit's worst change in nats, over seeds; None where no run was audited."""
        return max(self.values("leak", "max_difference"), default=None)

    @property
    def learned(self) -> bool:
        return any(result.evaluation.get("learned") for result in self.done)

    @property
    def curriculum(self) -> bool:
        """The rate curriculum was at work."""
        return any(result.evaluation.get("curriculum") for result in self.done)

    @property
    def controller(self) -> bool:
        return any(result.evaluation.get("controller") for result in self.done) and self.learned

    @property
    def target_rate(self) -> float:
        return self.run.training.target_rate

    @property
    def has_tokens(self) -> bool:
        """False for the floor without a token level, whose rate means nothing."""
        return self.run.model.n_mid > 0

    @property
    def rate_flag(self) -> str:
        """'collapsed' (< 1/4 or > 4x the target), 'off target' (> 10 %), in any seed; or ''."""
        if not self.has_tokens:
            return ""
        collapsed = [r for r in self.done if r.evaluation.get("rate_flag")]
        collapsed += [r for r in self.done if r.training.get("rate_collapsed")]
        if collapsed:
            return "collapsed"
        rates = [r.evaluation["boundary_rate"] for r in self.done]
        if any(abs(rate / self.target_rate - 1) > OFF_TARGET for rate in rates):
            return "off target"
        return ""

    @property
    def published(self) -> Published | None:
        run = self.run
        return published(self.family, run.estimator.label, run.model.size, run.estimator)


NAMES = ("model.size", "estimator.label", "estimator.rules")  # which decide nothing


def settings(row: Row, *but: str) -> dict[str, object]:
    """Everything that decides a row's weights but the seed, flat: 'training.lr' and so on.

    Args:
        but: keys to leave out, with everything below them ('training.curriculum').
    """
    keep = {"data", "model", "estimator", "training"}
    flat = _flat(row.run.model_dump(mode="json", include=keep))
    left_out = (*NAMES, *but)
    return {
        key: value
        for key, value in flat.items()
        if not any(key == name or key.startswith(name + ".") for name in left_out)
    }


def _flat(values: dict, prefix: str = "") -> dict[str, object]:
    flat = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        flat.update(_flat(value, name + ".") if isinstance(value, dict) else {name: value})
    return flat


def _variants(cells: list[list[Result]]) -> list[str]:
    """What tells cells of one (data, size, label) apart, as 'model.n_mid=4, ...'."""
    if len(cells) == 1:
        return [""]
    flats = [settings(Row(cell, "")) for cell in cells]
    keys = list(dict.fromkeys(k for flat in flats for k in flat))
    moving = [k for k in keys if len({json.dumps(flat.get(k)) for flat in flats}) > 1]
    short = {k: k.split(".", 1)[-1] for k in moving}
    return [", ".join(f"{short[k]}={flat[k]}" for k in moving if k in flat) for flat in flats]


def rows(collection: Collection) -> list[Row]:
    """One row for every distinct configuration but for the seed, in the matrix's order."""
    cells: dict[str, list[Result]] = {}
    for result in collection.results:
        cells.setdefault(result.cell, []).append(result)
    groups: dict[tuple, list[list[Result]]] = {}
    for cell in cells.values():
        run = cell[0].run
        groups.setdefault((run.data.name, run.model.size, run.estimator.label), []).append(cell)
    variant = {
        cell[0].cell: text
        for group in groups.values()
        for cell, text in zip(group, _variants(group), strict=True)
    }
    made = [Row(cell, variant[cell[0].cell]) for cell in cells.values()]
    order = {corpus: place for place, corpus in enumerate(collection.corpora())}
    return sorted(made, key=lambda row: order[row.data, row.size])


def baseline_of(row: Row, all_rows: list[Row], label: str = BASELINE) -> Row | None:
    """The row to compare with: that label, same data and size, and the only or the alike one."""
    found = [
        other
        for other in all_rows
        if (other.data, other.size, other.label) == (row.data, row.size, label) and other.done
    ]
    if len(found) > 1:
        alike = [
            other
            for other in found
            if other.run.model == row.run.model
            and other.target_rate == row.target_rate
            and other.run.training.steps == row.run.training.steps
        ]
        found = alike if len(alike) == 1 else []
    return found[0] if found and found[0] is not row else None


@dataclass(frozen=True)
class Comparison:
    """A row against the baseline: paired over seeds, and over test documents by bootstrap."""

    row: Row
    baseline: Row
    paired: Paired
    documents: Resampled | None

    @property
    def share_of_seeds(self) -> float | None:
        """Variance from seeds over that from seeds and documents; None where one is unknown."""
        if self.documents is None or self.paired.error is None:
            return None
        seeds, documents = self.paired.error**2, self.documents.error**2
        return seeds / (seeds + documents) if seeds + documents > 0 else None


def compare(row: Row, all_rows: list[Row], label: str = BASELINE) -> Comparison | None:
    """None where there is no baseline, or no seed in common with it."""
    baseline = baseline_of(row, all_rows, label)
    if baseline is None:
        return None
    found = paired(row.by_seed("bpb"), baseline.by_seed("bpb"))
    return Comparison(row, baseline, found, _over_documents(row, baseline)) if found else None


def _over_documents(row: Row, baseline: Row) -> Resampled | None:
    """Bits summed over the shared seeds, documents resampled; None without documents.csv."""
    theirs = {r.run.seed: r.documents for r in baseline.done}
    pairs = [(r.documents, theirs[r.run.seed]) for r in row.done if r.run.seed in theirs]
    pairs = [(a, b) for a, b in pairs if a and a.keys() == b.keys()]
    if not pairs or len(pairs[0][0]) < 2:
        return None
    names = sorted(pairs[0][0])
    if any(a.keys() != pairs[0][0].keys() for a, _ in pairs):
        return None
    ours = [sum(a[name][1] for a, _ in pairs) / len(pairs) for name in names]
    other = [sum(b[name][1] for _, b in pairs) / len(pairs) for name in names]
    return document_bootstrap(ours, other, [pairs[0][0][name][0] for name in names])
