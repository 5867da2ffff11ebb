"""The tables: main_table as .csv, .md and .tex, paired differences, and provenance.

The csv holds every number at full precision, one row a method; the other two are for reading.
A label is text whatever it spells ("None", "NA", "null", "nan"): it keeps its row (K33), and a
reader in pandas needs `keep_default_na=False` to see it as written.
"""

import csv
import io
import json
import re
from pathlib import Path

from rltok_core.errors import UserError
from rltok_core.report.collect import Collection, Result
from rltok_core.report.latex import document
from rltok_core.report.reading import Block, blocks, caption
from rltok_core.report.rows import Comparison, Row, compare

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
        "boundary_rate": row.boundary_mean("boundary_rate"),
        "bytes_per_token": row.boundary_mean("bytes_per_token"),
        "whitespace_share": row.boundary_mean("whitespace_share"),
        "truth_f1": row.boundary_mean("segmentation", "truth_tolerant", "f1"),
        "truth_f1_exact": row.boundary_mean("segmentation", "truth", "f1"),
        "floor_bpb": row.mean("floor_bpb"),
        "mid_usage": row.mean("mid_usage"),
        "causal": row.causal,
        "curriculum": row.curriculum,
        "published_bpb": number and number.value,
        "published_setting": number and number.setting,
        "published_method": number and number.method,
        "variant": row.variant,
        "whitespace_chance": row.boundary_mean("whitespace_chance"),
        "gap_bpb": row.mean("gap_bpb"),
        "true_model_bpb": row.mean("true_model_bpb"),
        "difference_to_uniform": difference and difference.mean,
        "difference_low": difference and difference.low,
        "difference_high": difference and difference.high,
        "bpb_threshold": row.mean("bpb_threshold"),
        "mid_stale": row.mean("mid_stale"),
        "bpb_mean_documents": row.mean("bpb_mean_documents"),
        "word_f1": row.boundary_mean("segmentation", "word_starts", "f1"),
        "bpe_f1": row.boundary_mean("segmentation", "bpe", "f1"),
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


def csv_of(header: list[str], lines: list[dict]) -> str:
    """A csv of these columns; fields as _text has them."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    for line in lines:
        writer.writerow([_text(line[key]) for key in header])
    return out.getvalue()


def main_csv(all_rows: list[Row], comparisons: dict[int, Comparison]) -> str:
    """main_table.csv. `comparisons` is keyed by the row's place in all_rows."""
    lines = [csv_values(row, comparisons.get(i)) for i, row in enumerate(all_rows)]
    text = csv_of(list(lines[0]), lines)
    # rows in = rows out, whatever the labels spell (K33)
    assert len(list(csv.reader(io.StringIO(text)))) == len(all_rows) + 1
    return text


def _md(text: str) -> str:
    """Escape what Markdown (and the HTML in it) would take for markup in a cell."""
    # an underscore inside a word is no markup, and names are full of them
    text = re.sub(r"[\\`*{}\[\]<>|]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\\g<0>", text)
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
    return csv_of(header, lines)


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
    return csv_of(header, lines)


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
