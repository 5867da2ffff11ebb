"""The main table: every method on every corpus, at full precision in the csv."""

from rltok_core.errors import UserError
from rltok_core.report.collect import Result
from rltok_core.report.edition import Edition, Table
from rltok_core.report.reading import caption, corpus_blocks
from rltok_core.report.rows import Comparison, Row


def main_table(edition: Edition) -> Table:
    """One row a method (and variant) of each corpus.

    Raises:
        UserError: runs of one corpus scored different numbers of bytes.
    """
    check_denominators(edition.rows)
    records = [csv_values(row, edition.comparisons.get(i)) for i, row in enumerate(edition.rows)]
    assert len(records) == len(edition.rows)  # rows in = rows out, whatever labels spell (K33)
    return Table(corpus_blocks(edition), caption(edition), records)


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
        "leak_nats": row.leak,
        "variant": row.variant,
        "whitespace_chance": row.boundary_mean("whitespace_chance"),
        "gap_bpb": row.mean("gap_bpb"),
        "true_model_bpb": row.mean("true_model_bpb"),
        "baseline": comparison and comparison.baseline.label,
        "difference_bpb": difference and difference.mean,
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
