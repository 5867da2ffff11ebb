"""The main table as people read it: numbers in words, marks, columns that fit a corpus, caption."""

from rltok_core.evaluation.bits import LEAK
from rltok_core.report.edition import Block, Edition
from rltok_core.report.published import SOURCE
from rltok_core.report.rows import OFF_TARGET, Comparison, Row
from rltok_core.report.statistics import INTERVAL, Estimate

MINUS = "\u2212"
DASH = "\u2013"


def number(value: float | None, digits: int = 3) -> str:
    """For reading: fixed digits, a real minus sign, an en dash for 'there is none'."""
    if value is None:
        return DASH
    text = f"{value:.{digits}f}"
    return text.replace("-", MINUS) if float(text) else text.removeprefix("-")


def signed(value: float, digits: int = 3) -> str:
    text = number(value, digits)
    return text if value <= 0 else f"+{text}"


def interval(value: Estimate | None, show=number) -> str:
    """'1.944 [1.930, 1.958]'; one seed: '1.944 (n=1)', no interval."""
    if value is None:
        return DASH
    if value.low is None:
        return f"{show(value.mean)} (n=1)"
    return f"{show(value.mean)} [{show(value.low)}, {show(value.high)}]"


MARKS = {
    "non-causal": ("\u2020", "not causal: a boundary may depend on later bytes"),
    "curriculum": ("\u2021", "trained with the rate curriculum, which the paper doesn't have"),
    "controller": ("\u00a7", "boundary rate held by the controller, which the paper doesn't have"),
    "collapsed": ("!!", "boundary rate collapsed: below 1/4 or above 4 times the target"),
    "off target": ("!", f"boundary rate of a seed more than {OFF_TARGET:.0%} off the target"),
}


def marks(row: Row) -> list[str]:
    """The names of the marks that a row bears wherever it is shown."""
    found = ["non-causal"] if row.causal is False else []
    found += ["curriculum"] if row.curriculum else []
    found += ["controller"] if row.controller else []
    return found + ([row.rate_flag] if row.rate_flag else [])


def mark_words(rows: list[Row]) -> str:
    """What the marks that these rows bear mean."""
    used = {mark for row in rows for mark in marks(row)}
    return " ".join(f"{sign} {text}." for name, (sign, text) in MARKS.items() if name in used)


LEAK_WORDS = (
    "Leak: the largest change of an earlier byte's log-probability (nats) when a later byte is "
    f"changed with the stream fixed; 'none': at most {LEAK:g}."
)


def method(row: Row) -> str:
    """Label, variant and marks, as shown in tables."""
    signs = " ".join(MARKS[mark][0] for mark in marks(row))
    return f"{row.name} {signs}".strip()


def caption(edition: Edition) -> str:
    """What a reader has to know to read the table; the same words in .md, .tex and .html."""
    all_rows, baseline = edition.rows, edition.baseline
    parts = [
        f"{edition.title}: bits per byte (BPB) on "
        f"held-out text, lower is better; mean over the n seeds and, in brackets, "
        f"{INTERVAL}. A single seed has no interval and says n=1.",
    ]
    if _has(all_rows, baseline):
        parts.append(
            f"\u0394 {baseline}: paired difference to {baseline} over the seeds that both have, "
            "with its paired t interval."
        )
    if any(row.published for row in all_rows):
        settings = sorted({row.published.setting for row in all_rows if row.published})
        parts.append(
            f"Published: the paper's own number ({SOURCE}; {'; '.join(settings)}), of another "
            "scale and another corpus: not comparable with the column BPB."
        )
    if any(row.values("floor_bpb") for row in all_rows):
        parts.append(
            "Floor: the exact entropy rate of the planted language; where a document's first words "
            "have no past, even the true model needs more (true_model_bpb in the csv). F1: "
            f"boundaries against the planted truth, {_tolerance(all_rows)} / exact."
        )
    parts.append(
        "Mid-usage: how much BPB rises when the token level's output is zeroed; a row near 0 "
        "ignores its tokens. Documents are never packed into one sequence."
    )
    if any(row.leak is not None for row in all_rows):
        parts.append(LEAK_WORDS)
    parts.append(mark_words(all_rows))
    if edition.collection.experiment.tag:
        parts.append(edition.collection.experiment.tag)
    return " ".join(filter(None, parts))


def _tolerance(all_rows: list[Row]) -> str:
    """What the tolerant F1 allows, in words."""
    known = {value for row in all_rows for value in row.values("boundary_tolerance")}
    if len(known) != 1:
        return "with the evaluation's own tolerance"
    late = f"{known.pop():g}"
    return f"up to {late} byte{'' if late == '1' else 's'} late allowed"


def reading_columns(block: list[Row], baseline: str) -> dict[str, callable]:
    """The columns of the readable tables for one corpus: those that have a value in it."""
    planted = any(row.values("floor_bpb") for row in block)
    columns = {
        "method": lambda row, _: method(row),
        "n": lambda row, _: _count(row),
        "BPB": lambda row, _: interval(row.bpb),
    }
    if _has(block, baseline):
        columns[f"\u0394 {baseline}"] = lambda row, c: _difference(row, c, baseline)
    columns |= {
        "BPB early exit": lambda row, _: number(row.mean("bpb_early")),
        "rate": lambda row, _: number(row.boundary_mean("boundary_rate")),
        "bytes / token": lambda row, _: number(row.boundary_mean("bytes_per_token"), 2),
    }
    if planted:
        columns["gap to floor"] = lambda row, _: number(row.mean("gap_bpb"))
        columns["truth F1 / exact"] = lambda row, _: _pair(
            row.boundary_mean("segmentation", "truth_tolerant", "f1"),
            row.boundary_mean("segmentation", "truth", "f1"),
        )
    if any(row.values("whitespace_share") for row in block):
        columns["whitespace / chance"] = lambda row, _: _pair(
            row.boundary_mean("whitespace_share"), row.boundary_mean("whitespace_chance")
        )
    if any(row.leak is not None for row in block):
        columns["leak"] = lambda row, _: leak_words(row.leak)
    columns["mid-usage"] = lambda row, _: number(row.mean("mid_usage"))
    if any(row.published for row in block):
        columns["published (other scale)"] = lambda row, _: number(
            row.published and row.published.value
        )
    return columns


def _has(block: list[Row], baseline: str) -> bool:
    """Whether there is anything to take differences to."""
    return any(row.label == baseline and row.done for row in block)


def leak_words(worst: float | None) -> str:
    """The leak audit's finding: 'none', or the change in nats."""
    if worst is None:
        return DASH
    return "none" if worst <= LEAK else f"{worst:.2g}"


def _count(row: Row) -> str:
    done, planned = len(row.done), len(row.results)
    return str(done) if done == planned else f"{done} of {planned}"


def _pair(first: float | None, second: float | None) -> str:
    return DASH if first is None else f"{number(first, 2)} / {number(second, 2)}"


def _difference(row: Row, comparison: Comparison | None, baseline: str) -> str:
    if comparison is None:
        return "baseline" if row.label == baseline and row.done else DASH
    return interval(comparison.paired.difference, signed)


def corpus_blocks(edition: Edition) -> list[Block]:
    """One readable table a corpus and size, with the columns that have a value in it."""
    blocks = []
    for data, size in edition.collection.corpora():
        places = [i for i, row in enumerate(edition.rows) if (row.data, row.size) == (data, size)]
        here = [edition.rows[i] for i in places]
        title = f"{data}, {size}"
        floor = [value for row in here for value in row.values("floor_bpb")]
        if floor:
            title += f" (floor {number(floor[0])} bits per byte)"
        columns = reading_columns(here, edition.baseline)
        block = Block(title, list(columns))
        for i in places:
            found = edition.comparisons.get(i)
            block.add([show(edition.rows[i], found) for show in columns.values()], edition.rows[i])
        blocks.append(block)
    return blocks
