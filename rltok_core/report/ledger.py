"""The fidelity ledger (paper.md 8): which of a re-implementation's decisions change the result.

A decision is a key of the configuration and the two values it may take. Its pair are two rows of
one corpus whose configurations differ in this key alone; the runs of a seed are compared with each
other. Two decisions concern the evaluation alone and are read off one row; two are identical by
construction, which tests check. An experiment whose matrix has a pair for every decision
(configs/experiments/ledger.yaml) has the table.
"""

from collections.abc import Callable
from dataclasses import dataclass

from rltok_core.report.edition import Block, Edition, NothingToShow, Table
from rltok_core.report.published import family
from rltok_core.report.reading import DASH, interval, number, signed
from rltok_core.report.rows import Row, settings
from rltok_core.report.statistics import INTERVAL, Paired, paired

NEGLIGIBLE = 0.01  # bits per byte: about half of what lies between the paper's w = 1 and w = 8

RULE = (
    f"Verdict, by the interval of the difference: no, if it lies within {NEGLIGIBLE} bits per byte "
    f"of 0 (the decision doesn't change the result); yes, if it lies on one side of 0; undecided, "
    f"if it holds both 0 and more than {NEGLIGIBLE}: more seeds would tell. One seed: no verdict."
)


@dataclass(frozen=True)
class Decision:
    """A point of the ledger that two trainings tell apart.

    Attributes:
        number: the point's in paper.md 8.
        text: what is decided.
        ours, other: the two sides, in words.
        key: where it stands in a resolved run.
        alike: whether two values of the key, ours first, are this decision.
    """

    number: int
    text: str
    ours: str
    other: str
    key: str
    alike: Callable[[object, object], bool]


def _values(ours: object, other: object) -> Callable[[object, object], bool]:
    return lambda a, b: (a, b) == (ours, other)


def _class(ours: str, other: str) -> Callable[[object, object], bool]:
    return lambda a, b: (a.rpartition(":")[2], b.rpartition(":")[2]) == (ours, other)


PRECISION = "training.precision"
DECISIONS = [
    Decision(1, "discount", "0.99", "0.9", "estimator.params.gamma", _values(0.99, 0.9)),
    Decision(
        *(2, "weight of L_auto", "1 - lam_early", "1"),
        *("training.paper_loss_weights", _values(False, True)),
    ),
    Decision(
        *(3, "positions for RoPE", "exact", "rounded to bf16"),
        *("model.rope_positions", _values("exact", "bf16")),
    ),
    Decision(
        *(4, "w = 1", "current byte alone", "and the previous boundary"),
        *("estimator.params.window", _values(1, 2)),
    ),
    Decision(
        *(5, "soft cap in evaluation", "on", "off"),
        *("estimator.params.softcap_in_evaluation", _values(True, False)),
    ),
    Decision(
        *(8, "BPE guidance", "as the paper, looks ahead", "prefixes alone"),
        *("estimator.class", _class("Bpe", "BpeCausal")),
    ),
    Decision(
        *(9, "attention window", "w keys, itself included", "w + 1 keys"),
        *("model.window", lambda a, b: b == a + 1),
    ),
    Decision(12, "precision", "float32", "bf16 autocast", PRECISION, _values("float32", "bf16")),
    Decision(
        *(12, "precision", "bf16 autocast", "all in bf16"),
        *(PRECISION, _values("bf16", "bf16_pure")),
    ),
]

# decided by construction: (point, text, ours, other, where the identity is tested)
IDENTICAL = [
    (
        *(10, "sequential sampling", "one fused scan", "a loop over positions"),
        "the same draws: tests/boundaries/test_score_function.py",
    ),
    (
        *(11, "EMA de-chunking", "PyTorch scan", "CUDA kernel"),
        "the same mathematics: tests/model/test_scans.py, tests/boundaries/test_hnet.py",
    ),
]


@dataclass(frozen=True)
class Entry:
    """A decision on a corpus: difference `other` - `ours` in BPB, paired by seed.

    found is None where runs are missing; data is '' for what no run has to show.
    """

    number: int
    text: str
    ours: str
    other: str
    data: str
    rows: tuple[str, str]
    found: Paired | None
    note: str = ""

    @property
    def verdict(self) -> str:
        """By RULE."""
        if not self.data:
            return "no"
        if self.found is None:
            return "missing"
        _, low, high, count = self.found.difference
        if count == 1:
            return "one seed"
        if max(abs(low), abs(high)) <= NEGLIGIBLE:
            return "no"
        return "yes" if low > 0 or high < 0 else "undecided"


def pairs_of(decision: Decision, all_rows: list[Row]) -> list[tuple[Row, Row]]:
    """(ours, other) of each corpus: rows that differ in the decision's key alone."""
    key = decision.key
    split = [(row, settings(row).get(key), settings(row, key)) for row in all_rows]
    found: dict[str, tuple[Row, Row]] = {}
    for ours, a, rest_a in split:
        for other, b, rest_b in split:
            if rest_a == rest_b and None not in (a, b) and decision.alike(a, b):
                found.setdefault(_corpus(ours), (ours, other))
    order = list(dict.fromkeys(_corpus(row) for row in all_rows))
    return [found[corpus] for corpus in order if corpus in found]


def _corpus(row: Row) -> str:
    """The kind of text, whatever its documents' length."""
    return family(row.run.data)


def ledger(all_rows: list[Row]) -> list[Entry]:
    """Every decision on every corpus that has its pair, in the order of the points; [] if some
    decision has no pair at all: then the experiment is not a ledger."""
    entries = []
    for decision in DECISIONS:
        pairs = pairs_of(decision, all_rows)
        if not pairs:
            return []
        for ours, other in pairs:
            found = paired(other.by_seed("bpb"), ours.by_seed("bpb"))
            words = (decision.number, decision.text, decision.ours, decision.other)
            note = "" if found is None else _rates(ours, other)
            entries.append(Entry(*words, _corpus(ours), (ours.name, other.name), found, note))
    first: dict[str, Row] = {}
    for row in all_rows:
        first.setdefault(_corpus(row), row)
    for data, row in first.items():
        for number_, text, ours, other, read in (
            (6, "bytes of BPB", "those predicted", "with one more a sequence", _padded),
            (7, "boundaries in evaluation", "sampled", "threshold 0.5", _threshold),
        ):
            found = paired(read(row), row.by_seed("bpb"))
            entries.append(Entry(number_, text, ours, other, data, (row.name,) * 2, found))
    for number_, text, ours, other, note in IDENTICAL:
        entries.append(Entry(number_, text, ours, other, "", ("", ""), None, note))
    return sorted(entries, key=lambda entry: entry.number)


def _padded(row: Row) -> dict[int, float]:
    """BPB of each seed over one byte more a sequence than was predicted (ledger 6)."""
    bytes_, windows = row.by_seed("scored_bytes"), row.by_seed("windows")
    return {
        seed: bpb * bytes_[seed] / (bytes_[seed] + windows[seed])
        for seed, bpb in row.by_seed("bpb").items()
        if seed in bytes_ and seed in windows
    }


def _threshold(row: Row) -> dict[int, float]:
    return row.by_seed("bpb_threshold")


def _rates(ours: Row, other: Row) -> str:
    """Both boundary rates: a difference in BPB may be one of rate."""
    each = (number(row.boundary_mean("boundary_rate")) for row in (ours, other))
    return "rate {}, {}".format(*each)


COLUMNS = [
    *("point", "decision", "ours", "other", "data", "ours_row", "other_row", "n_pairs"),
    *("difference_bpb", "low", "high", "verdict", "note"),
]
HEADER = ["decision", "ours", "other", "corpus", "n", "BPB, other - ours", "changes?", "note"]


def _record(entry: Entry) -> dict:
    mean, low, high, count = entry.found.difference if entry.found else (None, None, None, 0)
    words = (entry.number, entry.text, entry.ours, entry.other, entry.data, *entry.rows)
    values = (*words, count, mean, low, high, entry.verdict, entry.note)
    return dict(zip(COLUMNS, values, strict=True))


def _line(entry: Entry) -> list[str]:
    return [
        f"{entry.number}. {entry.text}",
        entry.ours,
        entry.other,
        entry.data or "any",
        str(entry.found.difference.n if entry.found else 0) if entry.data else DASH,
        interval(entry.found and entry.found.difference, signed),
        entry.verdict,
        entry.note,
    ]


def caption(title: str) -> str:
    """What a reader has to know, the verdict's rule included."""
    return (
        f"{title}: the points of the fidelity ledger (docs/paper.md 8). Difference in bits per "
        "byte on held-out text, the other decision less ours, paired by "
        f"seed, with {INTERVAL} of n pairs. {RULE} Points 6 and 7 are evaluations of the first row "
        "of each corpus. What holds at this scale need not hold at another."
    )


def ledger_table(edition: Edition) -> Table:
    """Every decision on every corpus.

    Raises:
        NothingToShow: some decision has no pair: the experiment is no ledger.
    """
    entries = ledger(edition.rows)
    if not entries:
        raise NothingToShow("pairs of runs that differ in one decision (experiment ledger)")
    block = Block("Fidelity ledger", HEADER)
    for entry in entries:
        block.add(_line(entry))
    records = [_record(entry) for entry in entries]
    return Table([block], caption(edition.title), records, COLUMNS)
