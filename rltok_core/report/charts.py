"""Figures with a row a method: BPB, difference to uniform, gap to the floor, token lengths.

All panels of a figure share one axis of methods, so that a method is at the same height in each.
"""

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from rltok_core.report.curves import by_corpus, corpus_title, plain
from rltok_core.report.edition import Edition, Picture, picture
from rltok_core.report.reading import MARKS, mark_words, marks
from rltok_core.report.rows import Row
from rltok_core.report.statistics import Estimate, estimate
from rltok_core.report.style import INK, SOFT, MethodStyle, legend_below, panels

_LENGTHS = 24  # the last bin of a token-length histogram holds all longer tokens
_RATE_MARKS = ("collapsed", "off target")  # these belong to a corpus, the others to the method


@dataclass(frozen=True)
class Panel:
    """The axes of one corpus; place is the height of each of its rows' methods."""

    ax: Axes
    rows: list[Row]
    place: dict[str, int]


def _by_method(groups: dict, title_pad: float = 5) -> tuple[Figure, list[Panel]]:
    """Panels side by side, three at most in a line, with one shared axis of methods."""
    everyone = [row for group in groups.values() for row in group]
    names = list(dict.fromkeys(row.name for row in everyone))
    shown = {name: plain(name) for name in names}
    for name in names:
        used = {mark for row in everyone if row.name == name for mark in marks(row)}
        signs = [MARKS[m][0] for m in MARKS if m in used and m not in _RATE_MARKS]
        shown[name] = " ".join([plain(name), *signs])
    columns = min(3, len(groups))
    lines = -(-len(groups) // columns)
    height = (0.62 + 0.2 * len(names)) * lines + 0.3
    figure, axes = panels(columns, height, rows=lines, sharey=True)
    flat = list(axes.flat)
    for unused in flat[len(groups) :]:
        unused.remove()
    place = {name: y for y, name in enumerate(names)}
    made = []
    for ax, (key, group) in zip(flat, groups.items(), strict=False):
        ax.set_yticks(range(len(names)), [shown[name] for name in names])
        ax.set_ylim(len(names) - 0.4, -0.6)
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="y", visible=False)
        ax.spines["left"].set_visible(False)
        ax.set_title(corpus_title(key), pad=title_pad)
        for row in group:
            if row.rate_flag:
                ax.annotate(
                    MARKS[row.rate_flag][0], (1, place[row.name] - 0.22), va="center", ha="right",
                    xycoords=("axes fraction", "data"), fontsize=7.5, fontweight="bold",
                )  # fmt: skip
        made.append(Panel(ax, group, place))
    return figure, made


def _limits(ax: Axes, values: list[float]) -> None:
    """x limits around the seeds: a two-seed interval may be many times wider than the data."""
    low, high = min(values), max(values)
    margin = max(0.14 * (high - low), 0.004)
    ax.set_xlim(low - margin, high + margin)
    ax.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))


def _dots(ax: Axes, y: float, seeds: list[float], found: Estimate, style: MethodStyle) -> None:
    """Interval, seeds as small hollow dots, the mean as the method's marker; arrows where cut."""
    left, right = ax.get_xlim()
    if found.low is not None:
        ax.plot(
            [max(found.low, left), min(found.high, right)], [y, y], color=style.color,
            linewidth=2.2, alpha=0.3, solid_capstyle="butt", zorder=2,
        )  # fmt: skip
        for edge, arrow, cut in (
            (left, "<", found.low < left),
            (right, ">", found.high > right),
        ):
            if cut:
                ax.plot([edge], [y], marker=arrow, color=style.color, markersize=3, clip_on=False)
    ax.plot(
        seeds, [y + 0.27] * len(seeds), "o", markersize=2.3, markerfacecolor="white",
        markeredgecolor=style.color, markeredgewidth=0.7, zorder=3,
    )  # fmt: skip
    ax.plot([found.mean], [y], zorder=4, **style.line() | {"linestyle": "none", "markersize": 4.6})


def _key() -> list[Line2D]:
    """The legend of a dot chart."""
    dot = {"marker": "o", "linestyle": "none", "color": SOFT}
    return [
        Line2D([], [], label="mean over seeds", markersize=4.6, **dot),
        Line2D([], [], label="one seed", markersize=2.3, markerfacecolor="white", **dot),
        Line2D([], [], label="95 % t interval (arrow: goes on)", color=SOFT, alpha=0.4, lw=2.2),
    ]


def _dot_chart(groups: dict, styles: dict, value: callable, xlabel: str, reference: callable):
    """value(row) -> {seed: number}; reference(group) -> (x, words) of a vertical line, or None."""
    lines = [reference(group) for group in groups.values()]
    figure, made = _by_method(groups, title_pad=12 if any(lines) else 5)
    for panel, line in zip(made, lines, strict=True):
        points = [number for row in panel.rows for number in value(row).values()]
        _limits(panel.ax, points + ([line[0]] if line else []))
        if line:
            x, words = line
            panel.ax.axvline(x, color=INK, linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
            right = x > np.mean(panel.ax.get_xlim())
            panel.ax.annotate(
                words, (x, 1), xycoords=("data", "axes fraction"), xytext=(0, 2), va="bottom",
                textcoords="offset points", ha="right" if right else "left", fontsize=6.5,
                color=SOFT,
            )  # fmt: skip
        for row in panel.rows:
            seeds = list(value(row).values())
            _dots(panel.ax, panel.place[row.name], seeds, estimate(seeds), styles[row.name])
        panel.ax.set_xlabel(xlabel)
    legend_below(figure, _key(), 3)
    return figure


_DOTS = (
    " Large marker: mean; small dots: the seeds; bar: 95 % Student's t interval over seeds, cut "
    "with an arrow where it leaves the axis (with two seeds it is very wide); no bar: one seed. "
)


def bpb_by_method(edition: Edition) -> Picture:
    """Test BPB of each method with interval and seeds, one panel a corpus."""
    rows, styles = edition.done, edition.styles
    groups = by_corpus(rows, lambda row: row.bpb is not None, "no run has a test BPB")

    def floor(group: list[Row]) -> tuple[float, str] | None:
        found = [value for row in group for value in row.values("floor_bpb")]
        return (found[0], "entropy floor") if found else None

    figure = _dot_chart(
        groups, styles, lambda row: row.by_seed("bpb"), "test BPB (bits per byte)", floor
    )
    return picture(figure, "BPB on the test split, lower is better." + _DOTS + mark_words(rows))


def difference_to_baseline(edition: Edition) -> Picture:
    """Paired difference of each method to the baseline, one panel a corpus."""
    rows, baseline = edition.done, edition.baseline
    found = {id(edition.rows[i]): comparison for i, comparison in edition.comparisons.items()}
    missing = f"no method shares a seed with {baseline}"
    groups = by_corpus(rows, lambda row: id(row) in found, missing)

    def differences(row: Row) -> dict[int, float]:
        base = found[id(row)].baseline.by_seed("bpb")
        return {s: v - base[s] for s, v in row.by_seed("bpb").items() if s in base}

    figure = _dot_chart(
        groups,
        edition.styles,
        differences,
        f"test BPB \u2212 that of {baseline}",
        lambda group: (0.0, baseline),
    )
    words = f"Difference in test BPB to {baseline} with the same seed; left of the line is better."
    return picture(figure, words + _DOTS + mark_words(rows))


def gap_to_floor(edition: Edition) -> Picture:
    """Planted language: BPB above its exact entropy, by method."""
    rows, styles = edition.done, edition.styles
    groups = by_corpus(
        rows, lambda row: bool(row.values("gap_bpb")), "no corpus with a known floor was evaluated"
    )
    figure = _dot_chart(
        groups,
        styles,
        lambda row: row.by_seed("gap_bpb"),
        "gap to the floor (bits per byte)",
        lambda group: (0.0, "floor"),
    )
    words = "Test BPB above the exact entropy rate of the planted language; 0 is perfect."
    return picture(figure, words + _DOTS + mark_words(rows))


def _lengths(row: Row) -> np.ndarray | None:
    """Share of tokens of 1, 2, ..., _LENGTHS or more bytes, over all seeds."""
    counts = np.zeros(_LENGTHS)
    for result in row.done:
        for length, count in (result.evaluation.get("token_lengths") or {}).items():
            counts[min(max(int(length), 1), _LENGTHS) - 1] += count
    return counts / counts.sum() if counts.sum() else None


def token_lengths(edition: Edition) -> Picture:
    """Distribution of token lengths: a small histogram a method, one column a corpus."""
    rows, styles = edition.done, edition.styles
    groups = by_corpus(
        [row for row in rows if row.has_tokens],
        lambda row: _lengths(row) is not None,
        "no evaluation has token lengths",
    )
    figure, made = _by_method(groups)
    edges = np.arange(1, _LENGTHS + 1)
    for panel in made:
        ax = panel.ax
        for row in panel.rows:
            share, base = _lengths(row), panel.place[row.name] + 0.4
            # each histogram is scaled to its own highest bar: shapes are compared, not heights
            height = 0.8 * share / share.max()
            ax.bar(
                edges, height, bottom=base - height, width=0.86, linewidth=0, alpha=0.8,
                color=styles[row.name].color,
            )  # fmt: skip
            ax.plot([0.4, _LENGTHS + 0.6], [base] * 2, color=SOFT, linewidth=0.4)
            mean = row.mean("bytes_per_token")
            if mean is not None and mean <= _LENGTHS:
                ax.plot([mean] * 2, [base - 0.8, base], color=INK, linewidth=0.9)
        ax.set_xlim(0.4, _LENGTHS + 0.6)
        ax.set_xlabel("token length (bytes)")
        ticks = [1, 5, 10, 15, 20, _LENGTHS]
        ax.set_xticks(ticks, [*map(str, ticks[:-1]), f"{_LENGTHS}+"])
    line = Line2D([], [], color=INK, linewidth=0.9, label="mean bytes per token")
    legend_below(figure, [line], 1)
    return picture(
        figure,
        "Distribution of token lengths on the test split, all seeds together; each histogram is "
        f"scaled to its own highest bar, and the last bar holds all tokens of {_LENGTHS} bytes or "
        "more. " + mark_words(rows),
    )
