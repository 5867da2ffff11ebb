"""Figures with lines: validation BPB over FLOPs, whitespace over training, profiles by position.

Seeds of a method are one line (their mean) and a band from the lowest to the highest seed.
"""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from rltok_core.report.collect import seeds_mean
from rltok_core.report.rows import Row
from rltok_core.report.style import INK, SOFT, MethodStyle, legend_below, panels


class NothingToDraw(Exception):
    """No run recorded what the figure shows; the message says what is missing."""


Curve = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # x, mean, low, high


def by_corpus(rows: list[Row], has: callable, missing: str) -> dict[tuple[str, str], list[Row]]:
    """Rows for which `has` holds, by (data, size). Raises NothingToDraw if there is none."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if has(row):
            groups.setdefault((row.data, row.size), []).append(row)
    if not groups:
        raise NothingToDraw(missing)
    return groups


def corpus_title(key: tuple[str, str]) -> str:
    return f"{key[0]} ({key[1]})"


def legend_name(row: Row) -> str:
    name = f"{row.label} ({row.variant})" if row.variant else row.label
    return name.replace("$", r"\$")  # matplotlib would read $...$ as mathematics


def handles(rows: list[Row], styles: dict[str, MethodStyle]) -> list[Line2D]:
    """One legend entry a method, in the order of the rows."""
    names = dict.fromkeys(row.label for row in rows)
    return [Line2D([], [], label=n.replace("$", r"\$"), **styles[n].line()) for n in names]


def _series(row: Row, log: str, x: str, y: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """(x, y) of each seed's log that has both."""
    found = []
    for result in row.done:
        records = [r for r in getattr(result, log) if _is(r.get(x)) and _is(r.get(y))]
        if records:
            xs = np.array([r[x] for r in records], dtype=np.float64)
            found.append((xs, np.array([r[y] for r in records], dtype=np.float64)))
    return found


def _is(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _by_step(row: Row, log: str, x: str, y: str) -> Curve | None:
    """Seeds joined at equal steps; x is their mean there (FLOPs differ a little by seed)."""
    across, along = _series(row, log, "step", y), _series(row, log, "step", x)
    if not across:
        return None
    steps, mean, low, high = seeds_mean(across)
    return (seeds_mean(along)[1], mean, low, high) if len(steps) else None


def _draw(axes: Axes, curve: Curve, style: MethodStyle, every: int | None = None) -> None:
    x, mean, low, high = curve
    axes.fill_between(x, low, high, color=style.color, alpha=0.16, linewidth=0)
    # few markers, the last point always among them
    step = every or max(1, len(x) // 5)
    axes.plot(x, mean, markevery=list(range(len(x) - 1, -1, -step)), **style.line())


def flops_bpb(rows: list[Row], styles: dict[str, MethodStyle]):
    """Training FLOPs against validation BPB, one line a method, one panel a corpus."""
    groups = by_corpus(
        rows,
        lambda row: _by_step(row, "validation_log", "flops", "bpb") is not None,
        "no run recorded a validation BPB with its FLOPs",
    )
    figure, axes = panels(len(groups), 3.1)
    for place, (key, group) in enumerate(groups.items()):
        ax: Axes = axes[0, place]
        for row in group:
            curve = _by_step(row, "validation_log", "flops", "bpb")
            _draw(ax, curve, styles[row.label])
        _show_the_end(ax, [_by_step(r, "validation_log", "flops", "bpb") for r in group])
        ax.set_xscale("log")
        ax.set_title(corpus_title(key))
        ax.set_xlabel("training FLOPs")
    axes[0, 0].set_ylabel("validation BPB (bits per byte)")
    legend_below(figure, handles([r for g in groups.values() for r in g], styles))
    return figure, (
        "Training FLOPs (the paper's convention, logarithmic axis) against BPB on the validation "
        "split, lower is better. A line is the mean over seeds, its band runs from the lowest to "
        "the highest seed. The top is cut so that the later part of training can be read."
    )


def _show_the_end(ax: Axes, curves: list[Curve]) -> None:
    """Limits that leave out the first steep fall, where all methods are alike."""
    long = [curve for curve in curves if len(curve[0]) > 3]
    if not long:
        return
    bottom = min(float(low.min()) for _, _, low, _ in curves)
    # each curve from a sixth of its validations on
    top = max(float(high[len(high) // 6 :].max()) for _, _, _, high in long)
    left = min(float(x[len(x) // 6]) for x, *_ in long)
    right = max(float(x[-1]) for x, *_ in curves)
    margin = 0.05 * (top - bottom)
    ax.set_ylim(bottom - margin, top + margin)
    ax.set_xlim(left * 0.93, right * 1.1)


def _rolling(curve: Curve, width: int) -> Curve:
    """Mean over `width` neighbouring records, fewer at the ends."""
    x, *lines = curve
    kernel = np.ones(width)
    count = np.convolve(np.ones(len(x)), kernel, "same")
    return (x, *(np.convolve(line, kernel, "same") / count for line in lines))


def whitespace_over_training(rows: list[Row], styles: dict[str, MethodStyle]):
    """Share of whitespace with a boundary on or just after it, over training."""
    groups = by_corpus(
        [row for row in rows if row.has_tokens and row.values("whitespace_share")],
        lambda row: _by_step(row, "train_log", "bytes", "whitespace_share") is not None,
        "no run recorded a share of whitespace (the planted language has none)",
    )
    figure, axes = panels(len(groups), 2.9, sharey=True)
    for place, (key, group) in enumerate(groups.items()):
        ax: Axes = axes[0, place]
        for row in group:
            curve = _by_step(row, "train_log", "bytes", "whitespace_share")
            width = min(len(curve[0]), max(1, len(curve[0]) // 20)) | 1
            x, *lines = _rolling(curve, width) if width > 1 else curve
            _draw(ax, (x / 1e6, *lines), styles[row.label])
        chance = [v for row in group for v in row.values("whitespace_chance")]
        targets = {row.target_rate for row in group}
        if chance and len(targets) == 1:
            level = 1 - (1 - targets.pop()) ** 2
            ax.axhline(level, color=INK, linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
            ax.annotate(
                "chance at the target rate",
                (1, level),
                xycoords=("axes fraction", "data"),
                ha="right",
                va="bottom",
                fontsize=6.5,
                color=SOFT,
            )
        ax.set_ylim(-0.03, 1.03)
        ax.set_title(corpus_title(key))
        ax.set_xlabel("training bytes (10$^6$)")
    axes[0, 0].set_ylabel("whitespace with a boundary")
    legend_below(figure, handles([r for g in groups.values() for r in g], styles))
    return figure, (
        "Share of whitespace bytes with a boundary on them or on the byte after, on the training "
        "batches (rolling mean over a twentieth of training; band: lowest to highest seed). "
        "Dashed: what a random choice at the target rate gives, 1 \u2212 (1 \u2212 rate)\u00b2."
    )


def _profile(row: Row, name: str) -> Curve | None:
    """positions.NAME of the evaluation over the seeds."""
    found = []
    for result in row.done:
        positions = result.evaluation.get("positions") or {}
        x, y = positions.get("index"), positions.get(name)
        if x and y and len(x) == len(y):
            keep = [i for i, value in enumerate(y) if _is(value)]
            xs = np.array([x[i] for i in keep], dtype=np.float64)
            found.append((xs, np.array([y[i] for i in keep], dtype=np.float64)))
    if not found:
        return None
    curve = seeds_mean(found)
    return curve if len(curve[0]) else None


def position(rows: list[Row], styles: dict[str, MethodStyle]):
    """Boundary probability (top) and loss (bottom) by position in the sequence."""
    groups = by_corpus(
        rows, lambda row: _profile(row, "bpb") is not None, "no evaluation has positions"
    )
    figure, axes = panels(len(groups), 4.3, rows=2, sharex="col")
    for place, (key, group) in enumerate(groups.items()):
        for ax, name in ((axes[0, place], "boundary_prob"), (axes[1, place], "bpb")):
            for row in group:
                curve = _profile(row, name)
                if curve is not None and (row.has_tokens or name == "bpb"):
                    _draw(ax, curve, styles[row.label])
            ax.yaxis.set_major_locator(MaxNLocator(5))
        _clip(axes[0, place], [_profile(row, "boundary_prob") for row in group if row.has_tokens])
        _clip(axes[1, place], [_profile(row, "bpb") for row in group])
        axes[0, place].set_title(corpus_title(key))
        axes[1, place].set_xlabel("position (bytes)")
        axes[1, place].xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes[0, 0].set_ylabel("boundary probability")
    axes[1, 0].set_ylabel("bits per byte")
    legend_below(figure, handles([r for g in groups.values() for r in g], styles))
    return figure, (
        "Mean boundary probability (top; a rule's is 0 or 1 at each byte) and BPB (bottom) by "
        "position in the sequence, in bins, on the test split; mean and band over seeds. The "
        "first bins are cut at the top where they would hide the rest."
    )


def _clip(ax: Axes, curves: list[Curve | None]) -> None:
    """Limits from the inner bins: the outer ones have forced boundaries and little context."""
    inner = [
        (low[len(low) // 16 :][:-1], high[len(high) // 16 :][:-1])
        for _, _, low, high in (c for c in curves if c is not None)
        if len(low) > 8
    ]
    if not inner:
        return
    bottom = min(float(low.min()) for low, _ in inner)
    top = max(float(high.max()) for _, high in inner)
    margin = 0.08 * (top - bottom) + 1e-3
    ax.set_ylim(max(0.0, bottom - margin), top + margin)
