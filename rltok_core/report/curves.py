"""Figures with lines: validation BPB over FLOPs, whitespace over training, profiles by position.

Seeds of a method are one line (their mean) and a band from the lowest to the highest seed.
"""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from rltok_core.report.collect import seeds_mean
from rltok_core.report.edition import Edition, NothingToShow, Picture, picture
from rltok_core.report.rows import Row
from rltok_core.report.style import INK, MethodStyle, legend_below, panels

_CHANCE = {"color": INK, "linewidth": 0.8, "linestyle": (0, (2, 2)), "zorder": 1}
Curve = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # x, mean, low, high


def by_corpus(rows: list[Row], has: callable, missing: str) -> dict[tuple[str, str], list[Row]]:
    """Rows for which `has` holds, by (data, size). Raises NothingToShow if there is none."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if has(row):
            groups.setdefault((row.data, row.size), []).append(row)
    if not groups:
        raise NothingToShow(missing)
    return groups


def corpus_title(key: tuple[str, str]) -> str:
    return f"{key[0]} ({key[1]})"


def plain(text: str) -> str:
    """Text that matplotlib won't read as mathematics."""
    return text.replace("$", r"\$")


def handles(rows: list[Row], styles: dict[str, MethodStyle]) -> list[Line2D]:
    """One legend entry a method, in the order of the rows."""
    names = dict.fromkeys(row.name for row in rows)
    return [Line2D([], [], label=plain(name), **styles[name].line()) for name in names]


def _series(row: Row, log: str, *names: str) -> list[list[np.ndarray]]:
    """The named columns of each seed's log, of the records that have them all."""
    found = []
    for result in row.done:
        records = [r for r in getattr(result, log) if all(_is(r.get(name)) for name in names)]
        if records:
            found.append([np.array([r[name] for r in records], np.float64) for name in names])
    return found


def _is(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _by_step(row: Row, log: str, x: str, y: str) -> Curve | None:
    """Seeds joined at equal steps; x is their mean there (FLOPs differ a little by seed)."""
    # the same records for both: a line of a log may lack y (no whitespace since the last one)
    found = _series(row, log, "step", x, y)
    if not found:
        return None
    steps, mean, low, high = seeds_mean([(step, ys) for step, _, ys in found])
    along = seeds_mean([(step, xs) for step, xs, _ in found])[1]
    return (along, mean, low, high) if len(steps) else None


def _draw(axes: Axes, curve: Curve, style: MethodStyle, **look) -> None:
    x, mean, low, high = curve
    axes.fill_between(x, low, high, color=style.color, alpha=0.16, linewidth=0)
    # few markers, the last point always among them
    step = max(1, len(x) // 5)
    axes.plot(x, mean, markevery=list(range(len(x) - 1, -1, -step)), **style.line() | look)


def flops_bpb(edition: Edition) -> Picture:
    """Training FLOPs against validation BPB, one line a method; a line of panels a corpus.

    Left: from the early fall on. Right: the last half, enlarged, with the names at the lines.
    """
    rows, styles = edition.done, edition.styles
    groups = by_corpus(
        rows,
        lambda row: _by_step(row, "validation_log", "flops", "bpb") is not None,
        "no run recorded a validation BPB with its FLOPs",
    )
    figure, axes = panels(2, 0.55 + 2.0 * len(groups), rows=len(groups))
    for (whole, late), (key, group) in zip(axes, groups.items(), strict=True):
        curves = {row.name: _by_step(row, "validation_log", "flops", "bpb") for row in group}
        unit = 10.0 ** math.floor(math.log10(max(curve[0][-1] for curve in curves.values())))
        for ax, share in ((whole, 0.15), (late, 0.5)):
            for name, (x, *lines) in curves.items():
                _draw(ax, (x / unit, *lines), styles[name])
            _show_from(ax, list(curves.values()), share, unit)
            ax.set_xlabel(f"training FLOPs ($10^{{{math.log10(unit):.0f}}}$)")
        whole.set_title(corpus_title(key))
        late.set_title("last half, enlarged", fontweight="normal")
        whole.set_ylabel("validation BPB")
        ends = {name: (x[-1] / unit, mean[-1]) for name, (x, mean, *_) in curves.items()}
        _label_ends(late, ends, styles)
    legend_below(figure, handles([r for g in groups.values() for r in g], styles))
    return picture(
        figure,
        "Training FLOPs (the paper's convention) against BPB on the validation split, in bits per "
        "byte, lower is better. A line is the mean over seeds, its band runs from the lowest to "
        "the highest seed. The first fall, where all methods are alike, is cut; right: the last "
        "half of training, enlarged.",
    )


def _show_from(ax: Axes, curves: list[Curve], share: float, unit: float) -> None:
    """Limits that leave out what lies before `share` of each curve's x."""
    shown = [(x / unit, low, high, x >= share * x[-1]) for x, _, low, high in curves]
    bottom = min(float(low[keep].min()) for _, low, _, keep in shown)
    top = max(float(high[keep].max()) for _, _, high, keep in shown)
    left = min(float(x[keep].min()) for x, _, _, keep in shown)
    right = max(float(x[-1]) for x, *_ in shown)
    margin = 0.06 * (top - bottom) + 1e-4
    ax.set_ylim(bottom - margin, top + margin)
    ax.set_xlim(left - 0.02 * right, right * 1.02)
    ax.yaxis.set_major_locator(MaxNLocator(5))


def _label_ends(ax: Axes, ends: dict[str, tuple[float, float]], styles: dict) -> None:
    """The names beside the lines' last points, moved apart and tied to them by thin lines."""
    bottom, top = ax.get_ylim()
    order = sorted(ends, key=lambda name: ends[name][1])
    gap = min(0.078, 1.0 / max(1, len(order) - 1))
    places = [(ends[name][1] - bottom) / (top - bottom) for name in order]
    for _ in range(200):  # neighbours push each other apart, evenly
        for i in range(1, len(places)):
            push = max(0.0, gap - (places[i] - places[i - 1])) / 2
            places[i - 1], places[i] = places[i - 1] - push, places[i] + push
        places = [min(max(place, -0.1), 1.1) for place in places]
    for name, place in zip(order, places, strict=True):
        ax.annotate(
            plain(name), xy=ends[name], xycoords="data", xytext=(1.05, place),
            textcoords="axes fraction", va="center", fontsize=6.5, color=INK,
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-", "color": styles[name].color, "linewidth": 0.6, "shrinkB": 2,
                "shrinkA": 1, "relpos": (0, 0.5),
            },
        )  # fmt: skip


def _rolling(curve: Curve, width: int) -> Curve:
    """Mean over `width` neighbouring records, fewer at the ends."""
    x, *lines = curve
    kernel = np.ones(width)
    count = np.convolve(np.ones(len(x)), kernel, "same")
    return (x, *(np.convolve(line, kernel, "same") / count for line in lines))


def whitespace_over_training(edition: Edition) -> Picture:
    """Share of whitespace with a boundary on or just after it, over training."""
    rows, styles = edition.done, edition.styles
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
            _draw(ax, (x / 1e6, *lines), styles[row.name])
        targets = {row.target_rate for row in group}
        if len(targets) == 1:
            ax.axhline(1 - (1 - targets.pop()) ** 2, **_CHANCE)
        ax.set_ylim(-0.03, 1.03)
        ax.set_title(corpus_title(key))
        ax.set_xlabel("training bytes (MB)")
    axes[0, 0].set_ylabel("whitespace with a boundary")
    chance = Line2D([], [], label="chance at the target rate", **_CHANCE)
    legend_below(figure, [*handles([r for g in groups.values() for r in g], styles), chance])
    return picture(
        figure,
        "Share of whitespace bytes with a boundary on them or on the byte after, on the training "
        "batches (rolling mean over a twentieth of training; band: lowest to highest seed). "
        "Dashed: what a random choice at the target rate gives, 1 \u2212 (1 \u2212 rate)\u00b2.",
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


def position(edition: Edition) -> Picture:
    """Boundary probability (top) and loss (bottom) by position in the sequence."""
    rows, styles = edition.done, edition.styles
    groups = by_corpus(
        rows, lambda row: _profile(row, "bpb") is not None, "no evaluation has positions"
    )
    figure, axes = panels(len(groups), 4.3, rows=2, sharex="col")
    for place, (key, group) in enumerate(groups.items()):
        for ax, name in ((axes[0, place], "boundary_prob"), (axes[1, place], "bpb")):
            for row in group:
                curve = _profile(row, name)
                if curve is not None and (row.has_tokens or name == "bpb"):
                    _draw(ax, curve, styles[row.name], linewidth=0.8)
            ax.yaxis.set_major_locator(MaxNLocator(5))
        _clip(axes[0, place], [_profile(row, "boundary_prob") for row in group if row.has_tokens])
        _clip(axes[1, place], [_profile(row, "bpb") for row in group])
        axes[0, place].set_title(corpus_title(key))
        axes[1, place].set_xlabel("position (bytes)")
        axes[1, place].xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes[0, 0].set_ylabel("boundary probability")
    axes[1, 0].set_ylabel("bits per byte")
    legend_below(figure, handles([r for g in groups.values() for r in g], styles))
    return picture(
        figure,
        "Mean boundary probability (top; a rule's is 0 or 1 at each byte) and BPB (bottom) by "
        "position in the sequence, in bins, on the test split; mean and band over seeds. The "
        "first bins are cut at the top where they would hide the rest.",
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
