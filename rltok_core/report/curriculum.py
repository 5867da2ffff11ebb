"""What the rate curriculum does to each method: curriculum.md and .csv, where runs have both.

Two rows are a pair if their runs differ in the curriculum alone: the same label, data, network,
estimator and training. The effect is paired over seeds; the order of the methods is that of mean
BPB without and with it, and two methods have changed places for certain only if both orders stand
out from the spread over seeds.
"""

import itertools
import json
from dataclasses import dataclass
from pathlib import Path

from scipy import stats

from rltok_core.report.rows import Row
from rltok_core.report.statistics import INTERVAL, Estimate, Paired, paired
from rltok_core.report.tables import csv_of

COLUMNS = [
    *("data", "size", "estimator", "n_pairs"),
    *("bpb_without", "bpb_with", "difference", "low", "high", "rank_without", "rank_with"),
    *("rate_without", "rate_with", "mid_usage_without", "mid_usage_with"),
]


@dataclass(frozen=True)
class Effect:
    """One method without and with the curriculum; `paired` is with minus without."""

    plain: Row
    moved: Row
    paired: Paired


def effects(all_rows: list[Row]) -> dict[tuple[str, str], list[Effect]]:
    """Every pair that shares a seed, by (data, size), in the order of the rows."""
    plain: dict[str, Row] = {}
    found: dict[tuple[str, str], list[Effect]] = {}
    for row in all_rows:
        if row.run.training.curriculum is None:
            plain[_but_for_the_curriculum(row)] = row
    for row in all_rows:
        other = plain.get(_but_for_the_curriculum(row))
        if row.run.training.curriculum is None or other is None:
            continue
        difference = paired(row.by_seed("bpb"), other.by_seed("bpb"))
        if difference:
            found.setdefault((row.data, row.size), []).append(Effect(other, row, difference))
    return found


def _but_for_the_curriculum(row: Row) -> str:
    run = row.run
    training = run.training.model_dump(mode="json", exclude={"curriculum"})
    model = run.model.model_dump(mode="json")
    estimator = [run.estimator.label, run.estimator.identity]
    return json.dumps([run.data.hash, model, estimator, training], sort_keys=True)


def ranks(values: list[float]) -> list[int]:
    """1 for the lowest."""
    return [int(rank) for rank in stats.rankdata(values, method="min")]


def order_words(found: list[Effect]) -> str:
    """Whether the order of the methods changes, in words with its numbers."""
    before, after = _means(found)
    names = [effect.plain.label for effect in found]

    def listed(values):
        return ", ".join(name for _, name in sorted(zip(values, names, strict=True)))

    turned = [
        (a, b)
        for a, b in itertools.combinations(range(len(found)), 2)
        if (before[a] - before[b]) * (after[a] - after[b]) < 0
    ]
    certain = [(a, b) for a, b in turned if _stands_out(found[a], found[b])]
    tau = stats.kendalltau(before, after).statistic if len(found) > 1 else 1.0
    pairs = len(found) * (len(found) - 1) // 2
    words = (
        f"Order without the curriculum, best first: {listed(before)}. With it: {listed(after)}. "
        f"Kendall's tau of the two is {tau:.2f}: {len(turned)} of {pairs} pairs of methods change "
        f"places in the mean, {len(certain)} of them beyond both {INTERVAL}s"
    )
    if certain:
        words += " (" + ", ".join(f"{names[a]} and {names[b]}" for a, b in certain) + ")"
    return words + "."


def _rows(effect: Effect) -> tuple[Row, Row]:
    return effect.plain, effect.moved


def _mean(row: Row) -> float:
    return row.bpb.mean


def _means(found: list[Effect]) -> tuple[list[float], list[float]]:
    """Mean BPB of each method without, and with."""
    return [_mean(e.plain) for e in found], [_mean(e.moved) for e in found]


def _stands_out(one: Effect, other: Effect) -> bool:
    """Both differences of the two methods, without and with, have intervals that exclude 0."""
    for mine, theirs in zip(_rows(one), _rows(other), strict=True):
        found = paired(mine.by_seed("bpb"), theirs.by_seed("bpb"))
        if found is None or found.difference.low is None:
            return False
        if found.difference.low <= 0 <= found.difference.high:
            return False
    return True


def write_curriculum(all_rows: list[Row], out: Path) -> list[Path]:
    """Write curriculum.md and curriculum.csv; nothing, and no old ones left, without any pair."""
    paths = [out / "curriculum.md", out / "curriculum.csv"]
    found = effects(all_rows)
    if not found:
        for path in paths:
            path.unlink(missing_ok=True)
        return []
    parts, lines = ["# The rate curriculum", ""], []
    for (data, size), pairs in found.items():
        made = _lines(data, size, pairs)
        lines += made
        parts += [f"**{data}, {size}**", "", _markdown(made), order_words(pairs), ""]
    parts.append(
        f"Difference: with minus without, paired over seeds, {INTERVAL}. Mid-usage: BPB lost when "
        "every byte gets the token before the latest."
    )
    paths[0].write_text("\n".join(parts) + "\n", encoding="utf-8")
    paths[1].write_text(csv_of(COLUMNS, lines), encoding="utf-8")
    return paths


def _lines(data: str, size: str, pairs: list[Effect]) -> list[dict]:
    before, after = map(ranks, _means(pairs))
    made = []
    for place, effect in enumerate(pairs):
        plain, moved = _rows(effect)
        difference: Estimate = effect.paired.difference
        values = (data, size, plain.label, difference.n, _mean(plain), _mean(moved))
        values += (*difference[:3], before[place], after[place])
        for key in ("boundary_rate", "mid_usage"):
            values += (plain.boundary_mean(key), moved.boundary_mean(key))
        made.append(dict(zip(COLUMNS, values, strict=True)))
    return made


def _markdown(lines: list[dict]) -> str:
    head = ["method", "n", "without", "with", "difference", "rank", "rate", "mid-usage"]
    text = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    for line in lines:
        interval = ""
        if line["low"] is not None:
            interval = f" [{line['low']:+.3f}, {line['high']:+.3f}]"
        cells = [
            line["estimator"],
            str(line["n_pairs"]),
            f"{line['bpb_without']:.3f}",
            f"{line['bpb_with']:.3f}",
            f"{line['difference']:+.3f}{interval}",
            f"{line['rank_without']} → {line['rank_with']}",
            _change(line, "rate"),
            _change(line, "mid_usage"),
        ]
        text.append("| " + " | ".join(cells) + " |")
    return "\n".join(text) + "\n"


def _change(line: dict, key: str) -> str:
    values = [line[f"{key}_without"], line[f"{key}_with"]]
    return " → ".join("–" if value is None else f"{value:.3f}" for value in values)
