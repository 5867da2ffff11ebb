"""Differences to the baseline, with the two things they depend on: training runs and documents.

Seeds: another training run gives another number (Student's t over paired seeds). Documents:
another test text gives another number, for the same weights (paired bootstrap over documents).
Neither contains the other, so both are shown, and which of the two is larger.
"""

from rltok_core.report.edition import Block, Edition, Table
from rltok_core.report.reading import DASH, interval, method, number, signed
from rltok_core.report.rows import Comparison, Row
from rltok_core.report.statistics import MIN_TEST_PAIRS

COLUMNS = [
    *("data", "size", "estimator", "variant", "baseline", "n_pairs"),
    *("difference_bpb", "low", "high", "interval", "standard_error_seeds"),
    *("documents_low", "documents_high", "standard_error_documents", "share_of_variance_seeds"),
    *("p_sign_flip", "smallest_p", "note"),
]


def differences(edition: Edition) -> Table:
    """Every row against the baseline with the same seeds."""
    blocks, records = [], []
    for corpus in edition.collection.corpora():
        block = Block(
            f"{corpus[0]}, {corpus[1]}: test BPB less that of {edition.baseline}",
            ["method", "pairs", "over seeds", "over documents", "s.e. seeds / documents", "p"],
        )
        for i, row in enumerate(edition.rows):
            if (row.data, row.size) != corpus:
                continue
            found = edition.comparisons.get(i)
            if found is not None:
                block.add(_line(row, found), row)
                records.append(_record(row, found))
            elif row.label != edition.baseline:
                block.add([method(row), *["no pair"], *[DASH] * 4], row)
        if block.lines:
            blocks.append(block)
    caption = (
        f"Difference in test BPB to {edition.baseline} with the same seed, less is better. Over "
        "seeds: mean and Student's t interval at 95 % of the paired differences; it says how much "
        "depends on the training run. Over documents: 95 % percentile interval of a paired "
        "bootstrap over test documents of the seeds' mean difference; it says how much depends on "
        "the test text. s.e.: standard error of the mean from either source. p: exact sign-flip "
        f"test over seeds, given from {MIN_TEST_PAIRS} pairs on, since with fewer no result could "
        "reach 0.05."
    )
    return Table(blocks, caption, records, COLUMNS)


def _line(row: Row, found: Comparison) -> list[str]:
    paired, documents = found.paired, found.documents
    over = f"[{signed(documents.low)}, {signed(documents.high)}]" if documents else DASH
    errors = f"{number(paired.error, 4)} / {number(documents and documents.error, 4)}"
    p = f"needs {MIN_TEST_PAIRS} pairs" if paired.difference.n < MIN_TEST_PAIRS else DASH
    return [
        method(row),
        str(paired.difference.n),
        interval(paired.difference, signed),
        over,
        errors,
        p if paired.p is None else number(paired.p),
    ]


def _record(row: Row, found: Comparison) -> dict:
    paired, documents = found.paired, found.documents
    values = (row.data, row.size, row.label, row.variant, found.baseline.label)
    values += (paired.difference.n, *paired.difference[:3], "paired t 95% over seeds")
    values += (paired.error,)
    values += (documents.low, documents.high, documents.error) if documents else (None,) * 3
    values += (found.share_of_seeds, paired.p, paired.smallest_p, paired.note)
    return dict(zip(COLUMNS, values, strict=True))
