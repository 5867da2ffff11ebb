"""The tables: main_table as .csv, .md and .tex, paired differences, and provenance.

The csv holds every number at full precision, one row a method; the other two are for reading.
A label is text whatever it spells ("None", "NA", "null", "nan"): it keeps its row (K33), and a
reader in pandas needs `keep_default_na=False` to see it as written.
"""

import csv
import io
import json
from pathlib import Path

from rltok_core.errors import UserError
from rltok_core.report.collect import Collection, Result
from rltok_core.report.latex import document
from rltok_core.report.published import SOURCE
from rltok_core.report.rows import BASELINE, OFF_TARGET, Comparison, Row, compare
from rltok_core.report.statistics import INTERVAL, Estimate

MINUS = "\u2212"
DASH = "\u2013"

PAIRED_COLUMNS = [
    *("data", "size", "estimator", "variant", "baseline", "n_pairs"),
    *("difference_bpb", "low", "high", "interval", "p_paired_t", "smallest_signed_rank_p"),
    *("documents_low", "documents_high", "note"),
]
PROVENANCE_COLUMNS = [
    *("run", "data", "size", "estimator", "seed", "status", "reason"),
    *("folder", "evaluation_folder", "run_hash", "evaluation_hash", "data_hash"),
    *("code_version", "evaluation_code_version", "device", "device_name", "host", "threads"),
    *("python", "package_versions"),
]


def csv_values(row: Row, comparison: Comparison | None) -> dict[str, object]:
    """One line of main_table.csv; None where a number doesn't exist."""
    bpb, number = row.bpb, row.published
    difference = comparison.paired.difference if comparison else None
    return {
        "data": row.data,
        "size": row.size,
        "estimator": row.label,
        "n_seeds": len(row.done),
        "bpb": bpb and bpb.mean,
        "bpb_low": bpb and bpb.low,
        "bpb_high": bpb and bpb.high,
        "bpb_early": row.mean("bpb_early"),
        "boundary_rate": row.mean("boundary_rate"),
        "bytes_per_token": row.mean("bytes_per_token"),
        "whitespace_share": row.mean("whitespace_share"),
        "truth_f1": row.mean("segmentation", "truth_tolerant", "f1"),
        "truth_f1_exact": row.mean("segmentation", "truth", "f1"),
        "floor_bpb": row.mean("floor_bpb"),
        "mid_usage": row.mean("mid_usage"),
        "causal": row.causal,
        "curriculum": row.curriculum,
        "published_bpb": number and number.value,
        "published_setting": number and number.setting,
        "published_method": number and number.method,
        "variant": row.variant,
        "whitespace_chance": row.mean("whitespace_chance"),
        "gap_bpb": row.mean("gap_bpb"),
        "difference_to_uniform": difference and difference.mean,
        "difference_low": difference and difference.low,
        "difference_high": difference and difference.high,
        "bpb_threshold": row.mean("bpb_threshold"),
        "mid_stale": row.mean("mid_stale"),
        "bpb_mean_documents": row.mean("bpb_mean_documents"),
        "word_f1": row.mean("segmentation", "word_starts", "f1"),
        "bpe_f1": row.mean("segmentation", "bpe", "f1"),
        "target_rate": row.target_rate,
        "rate_flag": row.rate_flag,
        "controller": row.controller,
        "learned": row.learned,
        "training_bytes": _training(row, "bytes"),
        "flops": row.mean("flops_paper"),
        "flops_counted": row.mean("flops_counted"),
        "seconds": row.mean("train_seconds"),
        "bytes_per_second": row.mean("bytes_per_second"),
        "peak_memory_bytes": row.mean("peak_memory_bytes"),
        "parameters": _training(row, "parameters", "total"),
        "scored_bytes": row.mean("scored_bytes"),
        "planned_seeds": len(row.results),
        "failed_or_missing": len(row.results) - len(row.done),
        "seeds": " ".join(map(str, row.seeds)),
    }


def _training(row: Row, *path: str) -> float | None:
    """The mean over seeds of a number of training.json."""
    found = []
    for result in row.done:
        value = result.training
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if isinstance(value, (int, float)):
            found.append(value)
    return sum(found) / len(found) if found else None


def check_denominators(all_rows: list[Row]) -> None:
    """Every run of a corpus must have scored the same bytes (K19).

    Raises:
        UserError: naming two runs that didn't.
    """
    first: dict[tuple, Result] = {}
    for result in (result for row in all_rows for result in row.done):
        scored = result.evaluation.get("scored_bytes")
        if scored is None:
            continue
        key = (result.run.data.name, result.run.model.size, result.run.training.seq_len)
        other = first.setdefault(key, result)
        if other.evaluation["scored_bytes"] != scored:
            raise UserError(
                f"{other.evaluation_folder} scored {other.evaluation['scored_bytes']} bytes of "
                f"{key[0]!r}, {result.evaluation_folder} scored {scored}: evaluate both again "
                "with the same evaluation settings"
            )


def _text(value: object) -> str:
    """A csv field: numbers at full precision, yes/no as true/false, nothing as an empty field."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(value)


def _csv(header: list[str], lines: list[dict]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    for line in lines:
        writer.writerow([_text(line[key]) for key in header])
    return out.getvalue()


def main_csv(all_rows: list[Row], comparisons: dict[int, Comparison]) -> str:
    """main_table.csv. `comparisons` is keyed by the row's place in all_rows."""
    lines = [csv_values(row, comparisons.get(i)) for i, row in enumerate(all_rows)]
    text = _csv(list(lines[0]), lines)
    # rows in = rows out, whatever the labels spell (K33)
    assert len(list(csv.reader(io.StringIO(text)))) == len(all_rows) + 1
    return text


def number(value: float | None, digits: int = 3) -> str:
    """For reading: fixed digits, a real minus sign, an en dash for 'there is none'."""
    if value is None:
        return DASH
    text = f"{value:.{digits}f}"
    return text.replace("-", MINUS) if float(text) else text.removeprefix("-")


def signed(value: float) -> str:
    return number(value) if value <= 0 else f"+{number(value)}"


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
    "off target": ("!", f"realised boundary rate more than {OFF_TARGET:.0%} off the target"),
}


def marks(row: Row) -> list[str]:
    """The names of the marks that a row bears wherever it is shown."""
    found = ["non-causal"] if row.causal is False else []
    found += ["curriculum"] if row.curriculum else []
    found += ["controller"] if row.controller else []
    return found + ([row.rate_flag] if row.rate_flag else [])


def method(row: Row) -> str:
    """Label, variant and marks, as shown in tables."""
    signs = " ".join(MARKS[mark][0] for mark in marks(row))
    return f"{row.name} {signs}".strip()


def caption(collection: Collection, all_rows: list[Row]) -> str:
    """What a reader has to know to read the table; the same words in .md, .tex and .html."""
    counts = sorted({len(row.done) for row in all_rows if row.done})
    seeds = " or ".join(map(str, counts)) or "no"
    parts = [
        f"{collection.experiment.title or collection.experiment.name}: bits per byte (BPB) on "
        f"held-out text, lower is better; mean over {seeds} seed(s) and, in brackets, "
        f"{INTERVAL}. A single seed has no interval and says n=1.",
        f"\u0394 {BASELINE}: paired difference to {BASELINE} over the seeds that both have, with "
        "its paired t interval.",
    ]
    if any(row.published for row in all_rows):
        settings = sorted({row.published.setting for row in all_rows if row.published})
        parts.append(
            f"Published: the paper's own number ({SOURCE}; {'; '.join(settings)}), of another "
            "scale and another corpus: not comparable with the column BPB."
        )
    if any(row.values("floor_bpb") for row in all_rows):
        parts.append(
            "Floor: the exact entropy of the planted language. F1: boundaries against the planted "
            f"truth, {_tolerance(all_rows)} / exact."
        )
    parts.append(
        "Mid-usage: how much BPB rises when the token level's output is zeroed; a row near 0 "
        "ignores its tokens. Rows are sequences of their own, never packed."
    )
    used = {mark for row in all_rows for mark in marks(row)}
    parts += [f"{sign} {text}." for name, (sign, text) in MARKS.items() if name in used]
    if collection.experiment.tag:
        parts.append(collection.experiment.tag)
    return " ".join(parts)


def _tolerance(all_rows: list[Row]) -> str:
    """What the tolerant F1 allows, in words."""
    known = {value for row in all_rows for value in row.values("boundary_tolerance")}
    if len(known) != 1:
        return "with the evaluation's own tolerance"
    late = f"{known.pop():g}"
    return f"up to {late} byte{'' if late == '1' else 's'} late allowed"


def reading_columns(block: list[Row]) -> dict[str, callable]:
    """The columns of the readable tables for one corpus: those that have a value in it."""
    planted = any(row.values("floor_bpb") for row in block)
    columns = {
        "method": lambda row, _: method(row),
        "n": lambda row, _: _count(row),
        "BPB": lambda row, _: interval(row.bpb),
        f"\u0394 {BASELINE}": lambda row, c: _difference(row, c),
        "BPB early exit": lambda row, _: number(row.mean("bpb_early")),
        "rate": lambda row, _: number(row.mean("boundary_rate")) if row.has_tokens else DASH,
        "bytes / token": lambda row, _: (
            number(row.mean("bytes_per_token"), 2) if row.has_tokens else DASH
        ),
    }
    if planted:
        columns["gap to floor"] = lambda row, _: number(row.mean("gap_bpb"))
        columns["truth F1 / exact"] = lambda row, _: _pair(
            row.mean("segmentation", "truth_tolerant", "f1"),
            row.mean("segmentation", "truth", "f1"),
        )
    if any(row.values("whitespace_share") for row in block):
        columns["whitespace / chance"] = lambda row, _: _pair(
            row.mean("whitespace_share"), row.mean("whitespace_chance")
        )
    columns["mid-usage"] = lambda row, _: number(row.mean("mid_usage"))
    if any(row.published for row in block):
        columns["published (other scale)"] = lambda row, _: number(
            row.published and row.published.value
        )
    return columns


def _count(row: Row) -> str:
    done, planned = len(row.done), len(row.results)
    return str(done) if done == planned else f"{done} of {planned}"


def _pair(first: float | None, second: float | None) -> str:
    return DASH if first is None else f"{number(first, 2)} / {number(second, 2)}"


def _difference(row: Row, comparison: Comparison | None) -> str:
    if comparison is None:
        return "baseline" if row.label == BASELINE and row.done else DASH
    return interval(comparison.paired.difference, signed)


class Block:
    """The readable table of one corpus: a title, a header and lines of text."""

    def __init__(self, all_rows: list[Row], comparisons: dict[int, Comparison], corpus: tuple):
        places = [i for i, row in enumerate(all_rows) if (row.data, row.size) == corpus]
        self.rows = [all_rows[i] for i in places]
        columns = reading_columns(self.rows)
        self.title = f"{corpus[0]}, {corpus[1]}"
        floor = [value for row in self.rows for value in row.values("floor_bpb")]
        if floor:
            self.title += f" (floor {number(floor[0])} bits per byte)"
        self.header = list(columns)
        self.lines = [
            [show(all_rows[i], comparisons.get(i)) for show in columns.values()] for i in places
        ]


def blocks(
    collection: Collection, all_rows: list[Row], comparisons: dict[int, Comparison]
) -> list[Block]:
    """One readable table a corpus and size."""
    return [Block(all_rows, comparisons, corpus) for corpus in collection.corpora()]


def _md(text: str) -> str:
    """Escape what Markdown (and the HTML in it) would take for markup in a cell."""
    for sign in "\\`*_{}[]<>|":
        text = text.replace(sign, "\\" + sign)
    return text.replace("\n", " ")


def main_md(collection: Collection, tables: list[Block], words: str) -> str:
    """main_table.md: a table a corpus, then the caption and whatever didn't finish."""
    parts = []
    for table in tables:
        parts += [f"**{_md(table.title)}**", ""]
        parts.append("| " + " | ".join(map(_md, table.header)) + " |")
        parts.append("|---|" + "---:|" * (len(table.header) - 1))
        for line in table.lines:
            # brackets of an interval are no markup; only the name needs care
            parts.append("| " + " | ".join([_md(line[0]), *line[1:]]) + " |")
        parts.append("")
    parts += [_md(words), ""]
    if collection.gaps:
        parts += ["Failed or missing runs:", ""]
        parts += [f"- `{r.run.id}`: {r.status}: {_md(r.reason)}" for r in collection.gaps]
        parts.append("")
    return "\n".join(parts)


def main_tex(collection: Collection, tables: list[Block], words: str) -> str:
    """main_table.tex: a document that compiles by itself; its table can be copied from it."""
    gaps = [f"{r.run.id}: {r.status}: {r.reason}" for r in collection.gaps]
    return document([(t.title, t.header, t.lines) for t in tables], words, gaps)


def paired_csv(all_rows: list[Row], comparisons: dict[int, Comparison]) -> str:
    """paired_differences.csv: every row against uniform."""
    header = PAIRED_COLUMNS
    lines = []
    for i, comparison in sorted(comparisons.items()):
        row, found = all_rows[i], comparison.paired
        low, high = comparison.documents or (None, None)
        values = (row.data, row.size, row.label, row.variant, comparison.baseline.label)
        values += (found.difference.n, *found.difference[:3], "paired t 95% over seeds", found.p)
        values += (found.smallest_signed_rank_p, low, high, found.note)
        lines.append(dict(zip(header, values, strict=True)))
    return _csv(header, lines)


def provenance_csv(collection: Collection) -> str:
    """provenance.csv: where every run's numbers come from (promise 9), and what didn't finish."""
    header = PROVENANCE_COLUMNS
    lines = []
    for result in collection.results:
        run, evaluation = result.run, result.evaluation
        made, scored = result.training.get("manifest", {}), evaluation.get("manifest", {})
        values = (run.id, run.data.name, run.model.size, run.estimator.label, run.seed)
        values += (result.status, result.reason, str(result.folder), str(result.evaluation_folder))
        values += (run.hash, evaluation.get("evaluation_hash"), result.data_hash)
        values += (_plain(made.get("code")), _plain(scored.get("code")), made.get("device"))
        values += (made.get("device_name"), made.get("host"), made.get("threads"))
        values += (made.get("python"), _plain(made.get("packages")))
        lines.append(dict(zip(header, values, strict=True)))
    return _csv(header, lines)


def _plain(value: object) -> str | None:
    """Text as it is, anything structured as JSON."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True)


def write_tables(
    collection: Collection, all_rows: list[Row], out: Path
) -> tuple[list[Path], list[Block], str]:
    """Write the five tables; return their paths, the readable blocks and the caption.

    Raises:
        UserError: runs of one corpus scored different numbers of bytes.
    """
    check_denominators(all_rows)
    found = {i: compare(row, all_rows) for i, row in enumerate(all_rows)}
    comparisons = {i: comparison for i, comparison in found.items() if comparison}
    words, tables = caption(collection, all_rows), blocks(collection, all_rows, comparisons)
    texts = {
        "main_table.csv": main_csv(all_rows, comparisons),
        "main_table.md": main_md(collection, tables, words),
        "main_table.tex": main_tex(collection, tables, words),
        "paired_differences.csv": paired_csv(all_rows, comparisons),
        "provenance.csv": provenance_csv(collection),
    }
    out.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (out / name).write_text(text, encoding="utf-8")
    return [out / name for name in texts], tables, words
