"""Boundary probability over held-out text: the same bytes under every method, as PNG pictures.

Cells are one byte each. The fill is the boundary probability, a bar under a byte is a boundary
that was sampled (or set by a rule). The fills stay light enough for dark text at every level.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.patches import Patch, Rectangle

from rltok_core.report.glyphs import glyphs
from rltok_core.report.rows import Row
from rltok_core.report.style import INK, SOFT, plt, save
from rltok_core.report.tables import method

# white to a mid orange: INK on the darkest level keeps a contrast above 7 to 1
PROBABILITY = LinearSegmentedColormap.from_list(
    "probability", ["#ffffff", "#fff1d6", "#ffd591", "#fdb04e", "#f58a1f"]
)
LEVELS = 20
COLUMNS = 80  # bytes a line of a picture
_ADVANCE = 0.60205  # width of a DejaVu Sans Mono sign, in ems


@dataclass(frozen=True)
class Strip:
    """One method on one document."""

    name: str
    seed: int
    prob: list[float]
    boundary: list[int]
    bits: list[float]


@dataclass(frozen=True)
class Sheet:
    """One document of one corpus under every method that has it."""

    data: str
    size: str
    document: int
    text: bytes
    strips: list[Strip]


def level(prob: float) -> int:
    """Probability in 0..LEVELS steps."""
    return int(round(min(max(prob, 0.0), 1.0) * LEVELS))


def level_color(step: int) -> str:
    return to_hex(PROBABILITY(step / LEVELS))


def sheets(rows: list[Row]) -> list[Sheet]:
    """Gather the heat maps of every row, each from its lowest seed that has any.

    Only documents whose bytes agree with the first method's are laid under it.
    """
    made: dict[tuple, Sheet] = {}
    for row in rows:
        shown = next((r for r in sorted(row.done, key=_seed) if r.heatmap), None)
        if shown is None or not row.has_tokens:
            continue
        for entry in shown.heatmap:
            text = bytes(entry["bytes"])
            key = (row.data, row.size, entry["document"], text)
            sheet = made.setdefault(key, Sheet(row.data, row.size, entry["document"], text, []))
            strip = Strip(
                method(row), shown.run.seed, entry["prob"], entry["boundary"], entry["bits"]
            )
            sheet.strips.append(strip)
    return list(made.values())


def _seed(result) -> int:
    return result.run.seed


def draw(sheet: Sheet, limit: int = 240):
    """A picture of the first `limit` bytes under every method."""
    signs = glyphs(sheet.text[:limit])
    # a cell holds one sign; a byte shown in hexadecimal would overlap its neighbours
    signs = [sign if len(sign) == 1 else "\u25af" for sign in signs]
    lines = -(-len(signs) // COLUMNS)
    block = lines * 1.28 + 1.55  # text lines are 1.28 cells high, plus the method's name
    rows = block * len(sheet.strips)
    width = 7.2
    cell = width / (COLUMNS + 1)
    size = cell / _ADVANCE * 72 * 0.94
    unit = cell * 1.75  # height of one cell in inches
    figure = plt.figure(figsize=(width, rows * unit + 0.62))
    ax = figure.add_axes((0, 0, 1, rows * unit / (rows * unit + 0.62)))
    ax.set_xlim(-0.5, COLUMNS + 0.5)
    ax.set_ylim(rows, 0)
    ax.axis("off")
    for place, strip in enumerate(sheet.strips):
        _strip(ax, strip, signs, place * block, size)
    figure.text(
        0.5 / (COLUMNS + 1),
        1 - 0.1 / figure.get_figheight(),
        f"{sheet.data} ({sheet.size}), test document {sheet.document}, first {len(signs)} bytes",
        fontweight="bold",
        fontsize=8.5,
        va="top",
    )
    patches = [
        Patch(facecolor=PROBABILITY(p), edgecolor=SOFT, linewidth=0.3, label=f"{p:g}")
        for p in (0.0, 0.25, 0.5, 0.75, 1.0)
    ]
    patches.append(Patch(facecolor=INK, label="boundary (bar under the byte)"))
    figure.legend(
        handles=patches, loc="upper left", ncols=6, fontsize=7, handlelength=1, columnspacing=1.1,
        bbox_to_anchor=(0, 1 - 0.22 / figure.get_figheight()), title_fontsize=7,
    )  # fmt: skip
    return figure


def _strip(ax, strip: Strip, signs: list[str], top: float, size: float) -> None:
    """One method: its name, then its lines of cells."""
    rate = sum(strip.boundary[: len(signs)]) / max(1, len(signs))
    ax.text(
        0, top + 0.75, f"{strip.name.replace('$', chr(92) + '$')}", fontsize=7.5, va="center",
        fontweight="bold",
    )  # fmt: skip
    ax.text(
        COLUMNS, top + 0.75, f"{rate:.3f} boundaries a byte here", fontsize=6.5, va="center",
        ha="right", color=SOFT,
    )  # fmt: skip
    for start in range(0, len(signs), COLUMNS):
        y = top + 1.25 + start // COLUMNS * 1.28
        part = slice(start, start + COLUMNS)
        colors = PROBABILITY(np.asarray(strip.prob[part], dtype=float))
        count = len(signs[part])
        ax.imshow(
            colors[None, :count], extent=(0, count, y + 1, y), aspect="auto",
            interpolation="nearest", zorder=1,
        )  # fmt: skip
        ax.add_patch(Rectangle((0, y), count, 1, fill=False, edgecolor="#cccccc", linewidth=0.3))
        for x, (sign, boundary) in enumerate(zip(signs[part], strip.boundary[part], strict=False)):
            ax.text(
                x + 0.5, y + 0.74, sign.replace("$", r"\$"), fontsize=size,
                family="DejaVu Sans Mono", ha="center", va="baseline", zorder=3,
                color=SOFT if sign in "\u2423\u21b5\u2192\u00b7" else INK,
            )  # fmt: skip
            if boundary:
                ax.add_patch(Rectangle((x, y + 0.9), 1, 0.16, color=INK, linewidth=0, zorder=4))


def write_pictures(found: list[Sheet], out: Path) -> list[Path]:
    """heatmap_DATA_SIZE_DOCUMENT.png for every sheet."""
    paths = []
    for sheet in found:
        name = f"heatmap_{sheet.data}_{sheet.size}_{sheet.document}"
        paths += save(draw(sheet), out / name, kinds=("png",))
    return paths
