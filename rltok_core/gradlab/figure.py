"""Bias against variance: a point an estimator, and the path it takes as gamma changes."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rltok_core.gradlab.lab import OWN
from rltok_core.gradlab.tables import PAPER, PLAIN, largest_batch
from rltok_core.report.style import INK, SOFT, MethodStyle, legend_below, method_styles, panels

TITLES = {"init": "At initialisation", "trained": "After a short training"}


def bias_variance(rows: list[dict]) -> Figure:
    """One panel a set of parameters, on the policy's parameters at the largest batch."""
    shown = [r for r in largest_batch(rows) if r["exact"] != OWN]
    sets = list(dict.fromkeys(r["params"] for r in shown))
    names = list(dict.fromkeys(r["estimator"] for r in shown))
    styles = method_styles(names)
    figure, axes = panels(len(sets), 3.5, sharey=True)
    positive = [r["rel_variance"] for r in shown if r["rel_variance"] > 0]
    floor = min(positive) / 6
    for ax, params in zip(axes[0], sets, strict=True):
        ax.set_yscale("log")
        for name in names:
            own = [r for r in shown if r["estimator"] == name and r["params"] == params]
            if own and own[0]["gamma"] is None:
                _point(ax, own[0], styles[name], floor)
            else:
                _paths(ax, own, styles[name])
        ax.axvline(0, color=INK, linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
        ax.annotate(
            "unbiased", (0, 1), xycoords=("data", "axes fraction"), xytext=(2, -2),
            textcoords="offset points", va="top", fontsize=6.5, color=SOFT,
        )  # fmt: skip
        ax.axvline(1, color=SOFT, linewidth=0.6, linestyle=(0, (1, 2)), zorder=1)
        ax.set_ylim(bottom=floor / 1.5)
        ax.set_xlim(left=-0.06)
        ax.set_title(TITLES.get(params, params))
        ax.set_xlabel("bias: distance of the mean gradient / length of the exact one")
    axes[0, 0].set_ylabel("variance / squared length of the exact gradient")
    legend_below(figure, _key(shown, names, styles), 3)
    return figure


def _paths(ax: Axes, rows: list[dict], style: MethodStyle) -> None:
    """Two lines over gamma: all baselines (filled), none (hollow); gamma at the ends of each."""
    for settings, hollow in ((PAPER, False), (PLAIN, True)):
        path = sorted((r for r in rows if r["settings"] == settings), key=lambda r: -r["gamma"])
        if not path:
            continue
        look = style.line() | {"markerfacecolor": "white" if hollow else style.color}
        ax.plot([r["bias"] for r in path], [r["rel_variance"] for r in path], **look)
        for r in (path[0], path[-1]):
            ax.annotate(
                rf"$\gamma$={r['gamma']:g}", (r["bias"], r["rel_variance"]), xytext=(4, 3),
                textcoords="offset points", fontsize=6, color=style.color,
            )  # fmt: skip


def _point(ax: Axes, row: dict, style: MethodStyle, floor: float) -> None:
    """One marker; a deterministic estimator's is on the lower edge."""
    look = style.line() | {"linestyle": "none", "markersize": 6}
    ax.plot([row["bias"]], [row["rel_variance"] or floor], **look, clip_on=False)
    note = f"cos {row['cosine']:.2f}" + ("" if row["rel_variance"] else ", no variance")
    ax.annotate(
        note, (row["bias"], row["rel_variance"] or floor), xytext=(6, -2),
        textcoords="offset points", fontsize=6, color=style.color,
    )  # fmt: skip


def _key(rows: list[dict], names: list[str], styles: dict[str, MethodStyle]) -> list[Line2D]:
    handles = []
    for name in names:
        swept = any(r["gamma"] is not None for r in rows if r["estimator"] == name)
        look = styles[name].line()
        if not swept:
            handles.append(Line2D([], [], label=name, **look | {"linestyle": "none"}))
            continue
        handles.append(Line2D([], [], label=f"{name}, both baselines", **look))
        hollow = look | {"markerfacecolor": "white"}
        handles.append(Line2D([], [], label=f"{name}, no baseline", **hollow))
    return handles
