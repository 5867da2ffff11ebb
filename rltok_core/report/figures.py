"""Every figure of the report: draws it, writes it in three formats, and words its caption.

A figure whose numbers nobody recorded isn't drawn; the report says why instead.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from matplotlib import rc_context

from rltok_core.report import charts, curves
from rltok_core.report.rows import Row
from rltok_core.report.style import RC, MethodStyle, save


@dataclass(frozen=True)
class Written:
    """One figure as written: its PNG first; no paths and a reason if it couldn't be drawn."""

    name: str
    title: str
    caption: str
    paths: list[Path] = field(default_factory=list)
    missing: str = ""


# name: (title, function of rows and styles that returns (figure, caption))
FIGURES: dict[str, tuple[str, Callable]] = {
    "bpb_by_method": ("Bits per byte by method", charts.bpb_by_method),
    "difference_to_uniform": ("Paired difference to uniform", charts.difference_to_uniform),
    "gap_to_floor": ("Gap to the entropy floor", charts.gap_to_floor),
    "flops_bpb": ("Training FLOPs against validation BPB", curves.flops_bpb),
    "whitespace_over_training": ("Whitespace with a boundary", curves.whitespace_over_training),
    "position": ("Boundary probability and loss by position", curves.position),
    "token_lengths": ("Token lengths", charts.token_lengths),
}


def write_figures(all_rows: list[Row], styles: dict[str, MethodStyle], out: Path) -> list[Written]:
    """Draw every figure into `out`, in the order of FIGURES."""
    written = []
    done = [row for row in all_rows if row.done]
    with rc_context(RC):
        for name, (title, draw) in FIGURES.items():
            try:
                figure, caption = draw(done, styles)
            except curves.NothingToDraw as reason:
                written.append(Written(name, title, "", missing=str(reason)))
                continue
            written.append(Written(name, title, caption, save(figure, out / name)))
    return written
