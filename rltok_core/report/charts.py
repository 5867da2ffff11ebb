"""Figures with a row a method: BPB, difference to uniform, gap to the floor, token lengths."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from rltok_core.report.curves import by_corpus, corpus_title, legend_name
from rltok_core.report.rows import BASELINE, Row, compare
from rltok_core.report.statistics import Estimate, estimate
from rltok_core.report.style import INK, SOFT, MethodStyle, legend_below, panels
from rltok_core.report.tables import MARKS, marks

_LENGTHS = 24  # the last bin of a token-length histogram holds all longer tokens


def _axis_of_methods(ax: Axes, rows: list[Row]) -> None:
    """One line a row from the top down, its label with the marks of the table."""
    names = [" ".join([legend_name(r), *(MARKS[m][0] for m in marks(r))]) for r in rows]
    ax.set_yticks(range(len(rows)), names)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    ax.spines["left"].set_visible(False)
    ax.xaxis.set_major_locator(MaxNLocator(5))


def _limits(ax: Axes, values: list[float], more: list[float] = ()) -> None:
    """x limits around the seeds: a two-seed interval may be many times wider than the data."""
    low, high = min([*values, *more]), max([*values, *more])
    margin = max(0.12 * (high - low), 0.004)
    ax.set_xlim(low - margin, high + margin)


def _dots(ax: Axes, y: float, seeds: list[float], found: Estimate, style: MethodStyle) -> None:
    """Interval, seeds as small hollow dots, the mean as the method's marker; arrows where cut."""
    left, right = ax.get_xlim()
    if found.low is not None:
        ax.plot(
            [max(found.low, left), min(found.high, right)],
            [y, y],
            color=style.color,
            linewidth=2.2,
            alpha=0.3,
            solid_capstyle="butt",
            zorder=2,
        )
        for end, edge, arrow in ((found.low, left, "<"), (found.high, right, ">")):
            if (end < left) if arrow == "<" else (end > right):
                ax.plot([edge], [y], marker=arrow, color=style.color, markersize=3.5, clip_on=False)
    ax.plot(
        seeds, [y + 0.24] * len(seeds), "o", markersize=2.6, markerfacecolor="white",
        markeredgecolor=style.color, markeredgewidth=0.7, zorder=3,
    )  # fmt: skip
    mean = style.line() | {"linestyle": "none", "markersize": 5.5}
    ax.plot([found.mean], [y], zorder=4, **mean)


def _key(interval: str) -> list[Line2D]:
    """The legend of a dot chart."""
    dot = {"marker": "o", "linestyle": "none", "color": SOFT}
    return [
        Line2D([], [], label="mean over seeds", markersize=5, **dot),
        Line2D([], [], label="one seed", markersize=2.6, markerfacecolor="white", **dot),
        Line2D([], [], label=interval, color=SOFT, alpha=0.4, linewidth=2.2),
    ]


def _height(groups: dict) -> float:
    return 0.95 + 0.235 * max(len(group) for group in groups.values())


def _stack(groups: dict) -> tuple:
    """Panels side by side with a method axis each: two at most in a row."""
    columns = min(2, len(groups))
    rows = -(-len(groups) // columns)
    figure, axes = panels(columns, _height(groups) * rows, rows=rows)
    flat = list(axes.flat)
    for unused in flat[len(groups) :]:
        unused.remove()
    return figure, flat


def _dot_chart(groups: dict, styles: dict, value: callable, xlabel: str, reference: callable):
    """value(row) -> {seed: number}; reference(group) -> [(x, words)] vertical lines."""
    figure, flat = _stack(groups)
    for ax, (key, group) in zip(flat, groups.items(), strict=False):
        _axis_of_methods(ax, group)
        lines = reference(group)
        points = [number for row in group for number in value(row).values()]
        _limits(ax, points, [x for x, _ in lines])
        for x, words in lines:
            ax.axvline(x, color=INK, linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
            ax.annotate(
                words, (x, 1), xycoords=("data", "axes fraction"), xytext=(2, 2),
                textcoords="offset points", fontsize=6.5, color=SOFT, va="bottom",
            )  # fmt: skip
        for y, row in enumerate(group):
            seeds = list(value(row).values())
            _dots(ax, y, seeds, estimate(seeds), styles[row.label])
        ax.set_title(corpus_title(key), pad=12 if lines else 6)
        ax.set_xlabel(xlabel)
    legend_below(figure, _key("95 % t interval (arrow: goes on)"), 3)
    return figure


_DOTS = (
    " Large marker: mean; small dots: the seeds; bar: 95 % Student's t interval over seeds, cut "
    "with an arrow where it leaves the axis (with two seeds it is very wide); no bar: one seed. "
)


def _mark_words(rows: list[Row]) -> str:
    used = {mark for row in rows for mark in marks(row)}
    return " ".join(f"{sign} {text}." for name, (sign, text) in MARKS.items() if name in used)


def bpb_by_method(rows: list[Row], styles: dict[str, MethodStyle]):
    """Test BPB of each method with interval and seeds, one panel a corpus."""
    groups = by_corpus(rows, lambda row: row.bpb is not None, "no run has a test BPB")

    def floor(group: list[Row]) -> list[tuple[float, str]]:
        found = [value for row in group for value in row.values("floor_bpb")]
        return [(found[0], "entropy floor")] if found else []

    figure = _dot_chart(
        groups, styles, lambda row: row.by_seed("bpb"), "test BPB (bits per byte)", floor
    )
    return figure, "BPB on the test split, lower is better." + _DOTS + _mark_words(rows)


def difference_to_uniform(rows: list[Row], styles: dict[str, MethodStyle]):
    """Paired difference of each method to uniform, one panel a corpus."""
    found = {id(row): compare(row, rows) for row in rows}
    groups = by_corpus(
        rows, lambda row: found[id(row)] is not None, f"no method shares a seed with {BASELINE}"
    )

    def differences(row: Row) -> dict[int, float]:
        base = found[id(row)].baseline.by_seed("bpb")
        return {s: v - base[s] for s, v in row.by_seed("bpb").items() if s in base}

    figure = _dot_chart(
        groups,
        styles,
        differences,
        f"test BPB \u2212 {BASELINE}'s, same seed",
        lambda group: [(0.0, BASELINE)],
    )
    words = f"Difference in test BPB to {BASELINE} with the same seed; left of the line is better."
    return figure, words + _DOTS + _mark_words(rows)


def gap_to_floor(rows: list[Row], styles: dict[str, MethodStyle]):
    """Planted language: BPB above its exact entropy, by method."""
    groups = by_corpus(
        rows, lambda row: bool(row.values("gap_bpb")), "no corpus with a known floor was evaluated"
    )
    figure = _dot_chart(
        groups,
        styles,
        lambda row: row.by_seed("gap_bpb"),
        "gap to the floor (bits per byte)",
        lambda group: [(0.0, "floor")],
    )
    words = "Test BPB above the exact entropy rate of the planted language; 0 is perfect."
    return figure, words + _DOTS + _mark_words(rows)


def _lengths(row: Row) -> np.ndarray | None:
    """Share of tokens of 1, 2, ..., _LENGTHS or more bytes, over all seeds."""
    counts = np.zeros(_LENGTHS)
    for result in row.done:
        for length, count in (result.evaluation.get("token_lengths") or {}).items():
            counts[min(max(int(length), 1), _LENGTHS) - 1] += count
    return counts / counts.sum() if counts.sum() else None


def token_lengths(rows: list[Row], styles: dict[str, MethodStyle]):
    """Distribution of token lengths: a small histogram a method, one column a corpus."""
    groups = by_corpus(
        [row for row in rows if row.has_tokens],
        lambda row: _lengths(row) is not None,
        "no evaluation has token lengths",
    )
    figure, flat = _stack(groups)
    edges = np.arange(1, _LENGTHS + 1)
    for ax, (key, group) in zip(flat, groups.items(), strict=False):
        _axis_of_methods(ax, group)
        for y, row in enumerate(group):
            share = _lengths(row)
            # each histogram is scaled to its own highest bar: shapes are compared, not heights
            tops = y + 0.4 - 0.8 * share / share.max()
            ax.bar(edges, y + 0.4 - tops, bottom=tops, width=0.86, color=styles[row.label].color,
                   alpha=0.75, linewidth=0)  # fmt: skip
            ax.plot([0.4, _LENGTHS + 0.6], [y + 0.4] * 2, color=SOFT, linewidth=0.4)
            mean = row.mean("bytes_per_token")
            if mean is not None and mean <= _LENGTHS:
                ax.plot([mean] * 2, [y - 0.4, y + 0.4], color=INK, linewidth=0.9)
        ax.set_xlim(0.4, _LENGTHS + 0.6)
        ticks = [1, 5, 10, 15, 20, _LENGTHS]
        ax.set_xticks(ticks, [*map(str, ticks[:-1]), f"{_LENGTHS}+"])
        ax.set_title(corpus_title(key))
        ax.set_xlabel("token length (bytes)")
    line = Line2D([], [], color=INK, linewidth=0.9, label="mean bytes per token")
    legend_below(figure, [line], 1)
    return figure, (
        "Distribution of token lengths on the test split, all seeds together; each histogram is "
        f"scaled to its own highest bar, and the last bar holds all tokens of {_LENGTHS} bytes or "
        "more. " + _mark_words(rows)
    )
