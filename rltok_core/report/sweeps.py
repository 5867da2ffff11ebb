"""Rows that differ in one thing alone: the paper's ablations, the loss weights, the aspect ratio.

Found from the resolved settings, so that any experiment at any scale that plans such rows has them;
a planned row without a finished run is a cross at the foot of its panel.
"""

import json

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from rltok_core.report.curves import corpus_title, plain
from rltok_core.report.edition import Edition, NothingToShow, Picture, picture
from rltok_core.report.published import SWITCHES
from rltok_core.report.rows import Row, settings
from rltok_core.report.statistics import estimate
from rltok_core.report.style import INK, SOFT, legend_below, method_styles, panels

LAMBDAS = {
    "lam_target": "estimator.params.lam_target",
    "lam_pi": "estimator.params.lam_pi",
    "lam_early": "training.lam_early",
}
ASPECT = ("model.n_mid", "training.target_rate")
BEST_ASPECT = 2  # in the paper, at 20M and 40M (paper.md 7)
Points = list[tuple[float, Row]]


def ablations(rows: list[Row]) -> list[tuple[Row, dict[str, Row]]]:
    """(baseline, {the paper's name of an ablation: row}) where rows differ in one switch alone.

    The baseline is, corpus by corpus, the first score-function row that others are ablations of.
    """
    found: dict[tuple, tuple[Row, dict[str, Row]]] = {}
    own = [row for row in rows if row.run.estimator.cls.endswith(":ScoreFunction")]
    flat = {id(row): settings(row) for row in own}
    for base in own:
        corpus, switched = (base.data, base.size), {}
        for row in own:
            ours, theirs = flat[id(row)], flat[id(base)]
            if (row.data, row.size) != corpus or ours.keys() != theirs.keys():
                continue
            changed = [key for key in ours if ours[key] != theirs[key]]
            if len(changed) == 1 and not isinstance(ours[changed[0]], list):
                name = SWITCHES.get((changed[0].rpartition(".")[2], ours[changed[0]]))
                if name and changed[0].startswith("estimator.params."):
                    switched.setdefault(name, row)
        # two rows may be each other's: what the paper switches off isn't a baseline
        if switched and corpus not in found:
            found[corpus] = (base, switched)
    return list(found.values())


def sweep(rows: list[Row], *keys: str) -> list[Points]:
    """Rows alike in all but `keys`, by the first one's value; only where two values are planned."""
    groups: dict[str, Points] = {}
    for row in rows:
        flat = settings(row)
        if all(isinstance(flat.get(key), (int, float)) for key in keys):
            same = json.dumps(settings(row, *keys), sort_keys=True, default=str)
            groups.setdefault(same, []).append((float(flat[keys[0]]), row))
    ordered = [sorted(points, key=lambda point: point[0]) for points in groups.values()]
    return [points for points in ordered if len({value for value, _ in points}) > 1]


def _line(ax: Axes, points: Points, style, *path: str) -> None:
    """Mean and interval over seeds of each value; one seed: the point alone."""
    known = [(x, estimate(row.values(*path))) for x, row in points]
    known = [(x, found) for x, found in known if found is not None]
    ax.plot([x for x, _ in known], [found.mean for _, found in known], **style.line())
    for x, found in known:
        if found.low is not None:
            ax.plot([x, x], [found.low, found.high], color=style.color, alpha=0.4, linewidth=2)
    for x, row in points:
        if not row.values(*path):
            ax.plot(
                [x], [0.03], "x", color=INK, markersize=5, clip_on=False,
                transform=ax.get_xaxis_transform(),
            )  # fmt: skip


def _name(points: Points) -> str:
    row = points[0][1]
    cls = row.run.estimator.cls.rpartition(":")[2]
    return f"{corpus_title((row.data, row.size))}, {cls}"


_GAP = Line2D([], [], marker="x", linestyle="none", color=INK, label="planned, no finished run")
_DRAWN = (
    "A point is the mean over seeds, its bar the 95 % t interval (no bar: one seed); a cross at "
    "the foot is a planned run that hasn't finished. "
)


def _handles(found: list[Points], styles: dict) -> list[Line2D]:
    names = dict.fromkeys(map(_name, found))
    lines = [Line2D([], [], label=plain(name), **styles[name].line()) for name in names]
    missing = any(not row.done for points in found for _, row in points)
    return [*lines, _GAP] if missing else lines


def lambda_sweeps(edition: Edition) -> Picture:
    """BPB and boundary rate over each loss weight, one at a time."""
    found = {
        name: [points for points in sweep(edition.rows, key) if any(row.done for _, row in points)]
        for name, key in LAMBDAS.items()
    }
    everything = [points for each in found.values() for points in each]
    if not everything:
        raise NothingToShow(f"no finished rows differ in one of {', '.join(LAMBDAS)} alone")
    styles = method_styles(list(dict.fromkeys(map(_name, everything))))
    figure, axes = panels(len(LAMBDAS), 3.6, rows=2, sharex="col", sharey="row")
    for column, (name, sweeps) in enumerate(found.items()):
        for ax, path in zip(axes[:, column], ("bpb", "boundary_rate"), strict=True):
            for points in sweeps:
                _line(ax, points, styles[_name(points)], path)
        values = sorted({value for points in sweeps for value, _ in points})
        positive = [value for value in values if value > 0]
        if sweeps:
            axes[0, column].set_xscale("symlog", linthresh=min(positive))
            axes[1, column].set_xticks(values, [f"{value:g}" for value in values])
            axes[1, column].minorticks_off()
        else:
            axes[0, column].text(
                0.5, 0.5, f"no sweep of\n{name} here", ha="center", va="center", color=SOFT,
                transform=axes[0, column].transAxes,
            )  # fmt: skip
        axes[0, column].set_title(name)
        axes[1, column].set_xlabel(name)
    axes[0, 0].set_ylabel("test BPB")
    axes[1, 0].set_ylabel("boundary rate")
    legend_below(figure, _handles(everything, styles), 2)
    caption = (
        "Test BPB (top) and realised boundary rate (bottom) over the weights of the loss terms, "
        "one changed at a time. " + _DRAWN + "The paper prints these sweeps as pictures without "
        "numbers, so none stand beside."
    )
    return picture(figure, caption)


def aspect_ratio(edition: Edition) -> Picture:
    """BPB over the aspect ratio r: r mid layers at target rate 1/r."""
    found = []
    for points in sweep(edition.rows, *ASPECT):
        # n_mid and rate move together; other rows that differ in one of them are no such sweep
        points = [(r, row) for r, row in points if abs(r * row.target_rate - 1) < 0.02]
        if len(points) > 1 and any(row.done for _, row in points):
            found.append(points)
    if not found:
        raise NothingToShow("no finished rows have r mid layers at target rate 1/r for several r")
    styles = method_styles(list(dict.fromkeys(map(_name, found))))
    figure, axes = panels(2, 2.7)
    for points in found:
        _line(axes[0, 0], points, styles[_name(points)], "bpb")
        _line(axes[0, 1], points, styles[_name(points)], "flops_paper")
    for ax, words in zip(axes[0], ("test BPB", "training FLOPs"), strict=True):
        ax.set_xlabel("aspect ratio r (mid layers; target rate 1/r)")
        ax.set_ylabel(words)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[0, 0].axvline(BEST_ASPECT, color=INK, linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
    best = Line2D(
        [], [], color=INK, linewidth=0.8, linestyle=(0, (2, 2)),
        label=f"best in the paper (r = {BEST_ASPECT}, FineWeb, 20M and 40M)",
    )  # fmt: skip
    legend_below(figure, [*_handles(found, styles), best], 2)
    return picture(figure, "Test BPB (left) and training FLOPs (right) by aspect ratio. " + _DRAWN)
