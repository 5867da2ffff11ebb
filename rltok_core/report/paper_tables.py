"""The paper's tables with our numbers beside the published ones: main, code, ablations, rates.

Made from whatever runs there are: a method that isn't planned, hasn't run or has failed keeps its
line and says so. What a verdict means is in verdicts.py and in every caption.
"""

from rltok_core.report import published as paper
from rltok_core.report import verdicts
from rltok_core.report.edition import Block, Edition, NothingToShow, Table
from rltok_core.report.reading import DASH, interval, mark_words, method, number, signed
from rltok_core.report.rows import Row
from rltok_core.report.statistics import Estimate, estimate, paired
from rltok_core.report.sweeps import ablations
from rltok_core.report.verdicts import Setting

# the paper's column: where an evaluation has ours
MEASURES = {
    "PIQA": ("downstream", "piqa", "bpb"),
    "HellaSwag": ("downstream", "hellaswag", "bpb"),
    "ARC-Easy": ("downstream", "arc_easy", "bpb"),
    "LAMBADA": ("downstream", "lambada", "bpb"),
    "test": ("bpb",),
    "rate": ("boundary_rate",),
}
RECORD = [
    *("data", "size", "paper_method", "estimator", "variant", "measure", "n_seeds"),
    *("published", "ours", "low", "high", "difference", "verdict", "state"),
]


def paper_table(edition: Edition) -> Table:
    """The main table: four tasks, test and boundary rate of six methods (FineWeb, 147M)."""
    table = _Table(edition, "prose", verdicts.MAIN)
    blocks, records = [], []
    for corpus in table.corpora(paper.MAIN_LABELS):
        rows = {label: table.row(corpus, label) for label in paper.MAIN_LABELS}
        block = Block(
            f"{corpus[0]}, {corpus[1]}: ours (published)", ["method", "ours", "n", *MEASURES]
        )
        detail = Block(
            f"{corpus[0]}, {corpus[1]}: what has been measured, beside the paper", DETAIL
        )
        for label, name in paper.MAIN_LABELS.items():
            row, numbers = rows[label], dict(zip(MEASURES, paper.MAIN_TABLE[name], strict=True))
            cells = [
                f"{number(_mean(row, path), 3)} ({number(numbers[measure])})"
                for measure, path in MEASURES.items()
            ]
            block.add([name, _ours(row), _count(row), *cells], row)
            for measure, path in MEASURES.items():
                record = table.record(corpus, name, label, row, measure, path, numbers[measure])
                records.append(record)
                if record["ours"] is not None:
                    detail.add(_detail(record, row, path), row)
        orders = []
        for column, (measure, path) in enumerate(MEASURES.items()):
            known = [
                (rows[label], paper.MAIN_TABLE[name][column])
                for label, name in paper.MAIN_LABELS.items()
                if rows[label] is not None and paper.MAIN_TABLE[name][column] is not None
            ]
            if measure != "rate" and any(row.values(*path) for row, _ in known):
                orders.append(f"{measure}: {verdicts.order(known, path, verdicts.MAIN)}")
        table.orders += [f"{corpus[0]}, {corpus[1]}: {words}." for words in orders]
        blocks += [block, detail] if detail.lines else [block]
    words = "The four tasks: BPB of the target continuation, zero-shot. "
    return Table(blocks, words + table.caption(blocks), records, RECORD)


def code_table(edition: Edition) -> Table:
    """The code table: CodeParrot, 90M, validation loss as published."""
    table = _Table(edition, "code", verdicts.CODE)
    blocks, records = [], []
    for corpus in table.corpora(paper.CODE_LABELS):
        block = Block(f"{corpus[0]}, {corpus[1]}", DETAIL)
        known = []
        for label, name in paper.CODE_LABELS.items():
            row, value = table.row(corpus, label), paper.CODEPARROT[name]
            record = table.record(corpus, name, label, row, "test", ("bpb",), value)
            records.append(record)
            block.add(_detail(record, row, ("bpb",)), row)
            known += [(row, value)] if row else []
        if known:
            words = verdicts.order(known, ("bpb",), verdicts.CODE)
            table.orders.append(f"{corpus[0]}, {corpus[1]}: {words}.")
        blocks.append(block)
    words = (
        "Published: validation loss, unit as published (the paper doesn't say bits or nats); ours: "
        "test BPB. "
    )
    return Table(blocks, words + table.caption(blocks), records, RECORD)


def rate_table(edition: Edition) -> Table:
    """Boundary rates: asked for, published and realised, of every method on every corpus."""
    blocks, records = [], []
    for corpus in edition.collection.corpora():
        block = Block(
            f"{corpus[0]}, {corpus[1]}",
            ["method", "n", "target", "published", "realised", "lowest seed", "highest seed",
             "off target", "bytes / token"],
        )  # fmt: skip
        for row in edition.rows:
            if (row.data, row.size) != corpus or not row.has_tokens:
                continue
            rates, target = row.values("boundary_rate"), row.target_rate
            mean, low, high = (
                (row.mean("boundary_rate"), min(rates), max(rates)) if rates else (None,) * 3
            )
            off = None if mean is None else mean / target - 1
            told = paper.MAIN_TABLE.get(paper.MAIN_LABELS.get(row.label, ""), (None,))[-1]
            told = told if row.family == "prose" else None
            block.add(
                [method(row), _count(row), *map(number, (target, told, mean, low, high)),
                 DASH if off is None else f"{signed(100 * off, 1)} %",
                 number(row.mean("bytes_per_token"), 2)],
                row,
            )  # fmt: skip
            names = "data size estimator variant n_seeds target published realised lowest highest"
            values = (*corpus, row.label, row.variant, len(rates), target, told, mean, low, high)
            record = dict(zip(names.split(), values, strict=True))
            record |= {"off_target": off, "flag": row.rate_flag}
            records.append(record | {"bytes_per_token": row.mean("bytes_per_token")})
        if block.lines:
            blocks.append(block)
    if not blocks:
        raise NothingToShow("no planned method has a token level")
    caption = (
        "Boundaries a position on the test split, the forced ends included. Published: the paper's "
        f"rate of that method ({verdicts.MAIN}). " + mark_words(edition.rows)
    )
    return Table(blocks, caption, records)


def ablation_table(edition: Edition) -> Table:
    """What each part of the score function's gradient is worth (FineWeb, 40M)."""
    blocks, records = [], []
    for base, found in ablations(edition.rows):
        block = Block(
            f"{base.data}, {base.size}: ours (published)",
            ["ablation", "ours", "n", "rate", "BPB", "\u0394 baseline", "published \u0394",
             "whitespace", "verdict on \u0394"],
        )  # fmt: skip
        for name, (rate, bpb, white) in paper.ABLATIONS.items():
            row = base if name == "baseline" else found.get(name)
            delta = paired(row.by_seed("bpb"), base.by_seed("bpb")) if row else None
            difference = delta.difference if delta and row is not base else None
            told = None if name == "baseline" else bpb - paper.ABLATIONS["baseline"][1]
            away = verdicts.departures(row.run, verdicts.ABLATIONS) if row else []
            verdict = verdicts.value_verdict(difference, told, away)
            verdict = _state(row) or (DASH if name == "baseline" else verdict)
            pairs = ((("boundary_rate",), rate), (("bpb",), bpb), (("whitespace_share",), white))
            cells = [f"{number(_mean(row, path))} ({number(value)})" for path, value in pairs]
            block.add(
                [name, _ours(row), _count(row), *cells[:2], interval(difference, signed),
                 DASH if told is None else signed(told), cells[2], verdict],
                row,
            )  # fmt: skip
            for measure, (path, value) in zip(("rate", "bpb", "whitespace"), pairs, strict=True):
                record = _record(base, name, row, measure, path, value, away)
                records.append(record | {"baseline": base.name})
        blocks.append(block)
    if not blocks:
        raise NothingToShow("no two planned rows differ in one of the paper's ablations alone")
    caption = (
        f"Each line changes one thing of the baseline. Published: {verdicts.ABLATIONS} "
        f"(validation), {paper.SOURCE}. \u0394: paired difference in BPB to our own baseline. "
        + verdicts.VALUE_RULE
    )
    return Table(blocks, caption, records, [*RECORD, "baseline"])


DETAIL = ["method", "ours", "n", "measure", "published", "value", "difference", "verdict"]


def _detail(record: dict, row: Row | None, path: tuple[str, ...]) -> list[str]:
    found = estimate(row.values(*path)) if row else None
    difference = record["difference"]
    return [
        *(record["paper_method"], _ours(row), _count(row), record["measure"]),
        *(number(record["published"]), interval(found)),
        *(DASH if difference is None else signed(difference), record["verdict"]),
    ]


def _mean(row: Row | None, path: tuple[str, ...]) -> float | None:
    return row.mean(*path) if row else None


def _ours(row: Row | None) -> str:
    return method(row) if row else "not planned"


def _state(row: Row | None) -> str:
    """Why a line has no number of ours; '' if it has."""
    if row is None:
        return "not planned"
    if row.done:
        return ""
    return ", ".join(sorted({result.status for result in row.results}))


def _count(row: Row | None) -> str:
    if row is None:
        return "0"
    done, planned = len(row.done), len(row.results)
    state = f" ({_state(row)})" if _state(row) else ""
    return str(done) if done == planned else f"{done} of {planned}{state}"


def _record(
    where: Row | tuple[str, str], name: str, row: Row | None, measure: str,
    path: tuple[str, ...], value: float | None, away: list[str],
) -> dict:  # fmt: skip
    """One line of a csv: a published number and ours."""
    found: Estimate | None = estimate(row.values(*path)) if row else None
    data, size = where if isinstance(where, tuple) else (where.data, where.size)
    known = found is not None and value is not None
    values = (data, size, name, row and row.label, row and row.variant, measure)
    values += (found.n if found else 0, value, *(found[:3] if found else (None,) * 3))
    values += (found.mean - value if known else None,)
    values += (verdicts.value_verdict(found, value, away), _state(row))
    return dict(zip(RECORD, values, strict=True))


class _Table:
    """What the main and the code table share: corpora of a family, rows by label, the caption."""

    def __init__(self, edition: Edition, family: str, setting: Setting):
        self.edition, self.family, self.setting = edition, family, setting
        self.orders: list[str] = []

    def corpora(self, labels: dict[str, str]) -> list[tuple[str, str]]:
        """(data, size) of the family where two of the labels are planned."""
        counts: dict[tuple[str, str], set[str]] = {}
        for row in self.edition.rows:
            if row.family == self.family and row.label in labels:
                counts.setdefault((row.data, row.size), set()).add(row.label)
        found = [corpus for corpus, planned in counts.items() if len(planned) > 1]
        if not found:
            raise NothingToShow(f"no {self.family} corpus has two of the paper's methods")
        return found

    def row(self, corpus: tuple[str, str], label: str) -> Row | None:
        """The label's row, the first of its variants; None if none is planned."""
        places = (row for row in self.edition.rows if (row.data, row.size) == corpus)
        return next((row for row in places if row.label == label), None)

    def record(self, corpus, name, label, row, measure, path, value) -> dict:
        away = verdicts.departures(row.run, self.setting) if row else []
        record = _record(corpus, name, row, measure, path, value, away)
        return record | {"estimator": label}

    def caption(self, blocks: list[Block]) -> str:
        """The source, the marks that the blocks bear, the order of methods and the rules."""
        shown = [row for block in blocks for row in block.rows if row]
        parts = [f"Published: {self.setting}, {paper.SOURCE}.", mark_words(shown)]
        if self.orders:
            parts += ["Order of the methods:", *self.orders]
        return " ".join(filter(None, [*parts, verdicts.VALUE_RULE, verdicts.ORDER_RULE]))
