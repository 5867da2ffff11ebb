"""The bench's figures as Markdown tables, for the terminal and for docs/performance.md."""

from rltok_core.bench.measure import Comparison


def duration(seconds: float) -> str:
    """Three digits and a unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-12:.3g} ps"


def markdown(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def comparison_table(found: list[Comparison]) -> str:
    """A line a comparison: medians, ratio and whether its goal is met."""
    rows = []
    for one in found:
        record = one.record()
        goal = "" if one.goal is None else f"{one.goal:.3g}: {'met' if record['met'] else 'MISSED'}"
        rows.append(
            [
                one.name,
                one.setting,
                f"{one.ours}: {duration(record['median_seconds'])}",
                f"{one.reference}: {duration(record['median_reference_seconds'])}",
                f"{one.ratio:.3g}",
                goal,
                str(len(one.seconds)),
            ]
        )
    header = ["what", "size", "ours", "reference", "ratio", "goal", "repeats"]
    return markdown(header, rows)
