"""Bias against variance: a point an estimator, and the path it takes as gamma changes."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rltok_core.gradlab.lab import OWN
from rltok_core.gradlab.tables import PLAIN, largest_batch
from rltok_core.report.style import INK, SOFT, MethodStyle, legend_below, method_styles, panels

FARTHEST = 2.0  # bias: what is farther off is marked at the edge
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
    swept = [name for name in names if any(r["gamma"] is not None for r in _of(shown, name))]
    for ax, params in zip(axes[0], sets, strict=True):
        ax.set_yscale("log")
        for name in names:
            own = [r for r in _of(shown, name) if r["params"] == params]
            if own and own[0]["gamma"] is None:
                _point(ax, own[0], styles[name], floor)
            elif own:
                _paths(ax, own, styles[name], named=name == swept[0])
        ax.axvline(0, color=INK, linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
        ax.annotate(
            "unbiased", (0, 1), xycoords=("data", "axes fraction"), xytext=(2, -2),
            textcoords="offset points", va="top", fontsize=6.5, color=SOFT,
        )  # fmt: skip
        ax.axvline(1, color=SOFT, linewidth=0.6, linestyle=(0, (1, 2)), zorder=1)
        ax.set_ylim(floor / 1.5, 4 * max(positive))
        ax.set_xlim(-0.06, FARTHEST)
        ax.set_title(TITLES.get(params, params))
        ax.set_xlabel("bias, in lengths of the exact gradient")
    axes[0, 0].set_ylabel("variance, in squared lengths\nof the exact gradient")
    legend_below(figure, _key(shown, names, styles), 3)
    return figure


def _of(rows: list[dict], name: str) -> list[dict]:
    return [r for r in rows if r["estimator"] == name]


def _paths(ax: Axes, rows: list[dict], style: MethodStyle, named: bool) -> None:
    """Two lines over gamma: all baselines (filled), none (hollow); `named`: gamma at their ends.

    A dotted one over the number of draws at gamma 1, where it was swept.
    """
    counts = sorted({r["samples"] for r in rows})
    if len(counts) > 1:
        _draws(ax, [r for k in counts for r in rows if (r["samples"], r["gamma"]) == (k, 1)], style)
    rows = [r for r in rows if r["samples"] == counts[0]]
    fullest = max((r["settings"] for r in rows), key=lambda text: text.count("+"))
    for settings, face in {PLAIN: "white", fullest: style.color}.items():
        path = sorted((r for r in rows if r["settings"] == settings), key=lambda r: -r["gamma"])
        look = style.line() | {"markerfacecolor": face}
        ax.plot([r["bias"] for r in path], [r["rel_variance"] for r in path], **look)
        for r in (path[0], path[-1]) if named else ():
            ax.annotate(
                rf"$\gamma$={r['gamma']:g}", (r["bias"], r["rel_variance"]), xytext=(4, 3),
                textcoords="offset points", fontsize=6, color=style.color,
            )  # fmt: skip


def _draws(ax: Axes, path: list[dict], style: MethodStyle) -> None:
    look = style.line() | {"linestyle": ":"}
    ax.plot([r["bias"] for r in path], [r["rel_variance"] for r in path], **look)
    for r in path:
        ax.annotate(
            f"K={r['samples']}", (r["bias"], r["rel_variance"]), xytext=(5, -3),
            textcoords="offset points", fontsize=6, color=style.color,
        )  # fmt: skip


def _point(ax: Axes, row: dict, style: MethodStyle, floor: float) -> None:
    """One marker; without variance it is on the lower edge, beyond the axis on the right one."""
    place = (min(row["bias"], FARTHEST), row["rel_variance"] or floor)
    ax.plot(*place, **style.line() | {"linestyle": "none", "markersize": 6}, clip_on=False)
    words = [f"cosine {row['cosine']:.2f}"]
    words += [f"bias {row['bias']:.3g}"] * (row["bias"] > FARTHEST)
    words += ["no variance"] * (not row["rel_variance"])
    right = place[0] > 0.7 * FARTHEST
    ax.annotate(
        ", ".join(words), place, xytext=(-6 if right else 6, 5), textcoords="offset points",
        ha="right" if right else "left", fontsize=6, color=style.color,
    )  # fmt: skip


def _key(rows: list[dict], names: list[str], styles: dict[str, MethodStyle]) -> list[Line2D]:
    handles = []
    for name in names:
        swept = any(r["gamma"] is not None for r in _of(rows, name))
        look = styles[name].line()
        if not swept:
            handles.append(Line2D([], [], label=name, **look | {"linestyle": "none"}))
            continue
        filled, hollow = (look | {"markerfacecolor": c} for c in (styles[name].color, "white"))
        if {r["settings"] for r in _of(rows, name)} == {PLAIN}:  # no switch of ours
            handles.append(Line2D([], [], label=name, **filled))
            continue
        handles.append(Line2D([], [], label=f"{name}, both baselines", **filled))
        handles.append(Line2D([], [], label=f"{name}, no baseline", **hollow))
    return handles
