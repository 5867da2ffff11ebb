"""Boundary probability over held-out text: the same bytes under every method, as PNG pictures.

Cells are one byte each. The fill is the boundary probability, a bar under a byte is a boundary
that was sampled (or set by a rule). The fills stay light enough for dark text at every level.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Patch, PathPatch, Rectangle
from matplotlib.path import Path as MplPath
from matplotlib.textpath import TextPath

from rltok_core.report.curves import plain
from rltok_core.report.edition import Edition, NothingToShow, Picture
from rltok_core.report.explorer import Strip, Text
from rltok_core.report.fonts import font_for, is_mono
from rltok_core.report.glyphs import CIRCLE, CONTINUED, NEWLINE, RETURN, SPACE, TAB, glyphs
from rltok_core.report.reading import mark_words, method
from rltok_core.report.rows import Row
from rltok_core.report.style import INK, SOFT, plt

# white to a mid orange: INK on the darkest level keeps a contrast above 7 to 1
PROBABILITY = LinearSegmentedColormap.from_list(
    "probability", ["#ffffff", "#fff1d6", "#ffd591", "#fdb04e", "#fa9a3c"]
)
COLUMNS = 80  # bytes a line of a picture
LINE = 1.3  # distance of two lines, in cells
HEAD = 0.5  # inches above the first method: title and legend
PALE = "#444444"  # signs for blanks
BLANKS = (SPACE, NEWLINE, TAB, RETURN, CONTINUED)  # drawn paler
UNKNOWN = "\u25af"  # a byte that is no text, or a character that no font has
_ADVANCE = 0.60205  # width of a DejaVu Sans Mono sign, in ems
_OTHERS = 0.85  # size of signs of other fonts, in ems: a Chinese one is a whole em wide


@dataclass(frozen=True)
class Sheet:
    """One document of one corpus under every method that has it."""

    data: str
    size: str
    document: int
    text: bytes
    family: str
    strips: list[Strip]


def sheets(rows: list[Row]) -> list[Sheet]:
    """Gather the heat maps of every row, each from its lowest seed that has any.

    Only the same bytes share a sheet: methods that were asked for more of a document
    (evaluation.heatmap_bytes) have one of their own.
    """
    made: dict[tuple, Sheet] = {}
    for row in rows:
        shown = next((r for r in sorted(row.done, key=_seed) if r.heatmap), None)
        if shown is None or not row.has_tokens:
            continue
        for entry in shown.heatmap:
            text = bytes(entry["bytes"])
            key = (row.data, row.size, entry["document"], text)
            fresh = Sheet(row.data, row.size, entry["document"], text, row.family, [])
            sheet = made.setdefault(key, fresh)
            strip = Strip(
                row.name,
                method(row),
                shown.run.seed,
                entry["prob"],
                entry["boundary"],
                entry["bits"],
            )
            sheet.strips.append(strip)
    return list(made.values())


def texts(rows: list[Row]) -> list[Text]:
    """The same documents for the page's explorer, and the suite of fixed texts after them."""
    shown = [
        Text(f"{s.data} ({s.size})", f"{s.data}, test document {s.document}", s.text, s.strips)
        for s in sheets(rows)
    ]
    return shown + _suite(rows)


def _suite(rows: list[Row]) -> list[Text]:
    """The suite of probes.json under the models of each corpus, from each one's lowest seed."""
    made: dict[tuple, Text] = {}
    for row in rows:
        first = next((r for r in sorted(row.done, key=_seed) if r.probes.get("texts")), None)
        for entry in first.probes["texts"] if first and row.has_tokens else []:
            text, group = bytes(entry["bytes"]), f"fixed texts, models of {row.data} ({row.size})"
            key = (row.data, row.size, text)
            one = made.setdefault(key, Text(group, f"{entry['title']} ({row.data})", text, []))
            values = (entry["prob"], entry["boundary"], entry["bits"])
            one.strips.append(Strip(row.name, method(row), first.run.seed, *values))
    return list(made.values())


def _seed(result) -> int:
    return result.run.seed


def draw(sheet: Sheet, limit: int = 240):
    """A picture of the first `limit` bytes under every method."""
    signs = glyphs(sheet.text[:limit])
    # a cell holds one sign; a byte shown in hexadecimal would overlap its neighbours
    signs = [sign if len(sign) == 1 or sign[0] == CIRCLE else UNKNOWN for sign in signs]
    signs = [sign if font_for(sign) else UNKNOWN for sign in signs]
    lines = -(-len(signs) // COLUMNS)
    block = lines * LINE + 1.35  # with the method's name above
    rows = block * len(sheet.strips)
    width = 7.2
    cell = width / (COLUMNS + 1)
    unit = cell * 1.8  # height of one cell in inches
    em = 0.94 / _ADVANCE  # cells across that one em of the text takes
    figure = plt.figure(figsize=(width, rows * unit + HEAD))
    ax = figure.add_axes((0, 0, 1, rows * unit / (rows * unit + HEAD)))
    ax.set_xlim(-0.5, COLUMNS + 0.5)
    ax.set_ylim(rows, 0)
    ax.axis("off")
    for place, strip in enumerate(sheet.strips):
        _strip(ax, strip, signs, place * block, (em, em * cell / unit))
    figure.text(
        0.5 / (COLUMNS + 1),
        1 - 0.1 / figure.get_figheight(),
        f"{sheet.data} ({sheet.size}), test document {sheet.document}, first {len(signs)} bytes",
        fontweight="bold",
        fontsize=8.5,
        va="top",
    )
    words = {0.0: "probability 0", 0.25: "0.25", 0.5: "0.5", 0.75: "0.75", 1.0: "1"}
    patches = [
        Patch(facecolor=PROBABILITY(p), edgecolor=SOFT, linewidth=0.3, label=text)
        for p, text in words.items()
    ]
    patches.append(Patch(facecolor=INK, label="boundary (bar under the byte)"))
    figure.legend(
        handles=patches, loc="upper left", ncols=6, fontsize=7, handlelength=1, columnspacing=1.1,
        bbox_to_anchor=(0, 1 - 0.22 / figure.get_figheight()), title_fontsize=7,
    )  # fmt: skip
    return figure


@cache
def _outline(sign: str) -> tuple[np.ndarray, np.ndarray]:
    """Vertices (in ems, centred, y down) and codes of one sign."""
    font = font_for(sign)
    mono = is_mono(font)
    path = TextPath((0, 0), plain(sign), size=1 if mono else _OTHERS, prop=font)
    vertices = np.asarray(path.vertices)
    middle = _ADVANCE / 2 if mono else (vertices[:, 0].min() + vertices[:, 0].max()) / 2
    return (vertices - [middle, 0]) * [1, -1], np.asarray(path.codes)


def _text(ax, signs: list[str], corners: list[tuple[float, float]], scale: tuple, color) -> None:
    """All signs as one path: thousands of text objects would take half a minute a picture.

    Args:
        corners: the middle of each sign's baseline, in cells.
        scale: cells per em, across and down.
    """
    outlines = [_outline(sign) for sign in signs]
    vertices = [v * scale + corner for (v, _), corner in zip(outlines, corners, strict=True)]
    if vertices:
        path = MplPath(np.concatenate(vertices), np.concatenate([codes for _, codes in outlines]))
        # add_patch would walk over every curve to find limits that are set already
        ax.add_artist(PathPatch(path, facecolor=color, linewidth=0, zorder=3))


def _strip(ax, strip: Strip, signs: list[str], top: float, scale: tuple[float, float]) -> None:
    """One method: its name, then its lines of cells."""
    count = len(signs)
    rate = sum(strip.boundary[:count]) / max(1, count)
    words = {"va": "center", "fontsize": 7}
    ax.text(0, top + 0.72, plain(strip.shown), fontweight="bold", **words)
    ax.text(COLUMNS, top + 0.72, f"{rate:.3f} boundaries a byte", ha="right", color=SOFT, **words)
    for start in range(0, count, COLUMNS):
        y, here = top + 1.2 + start // COLUMNS * LINE, min(COLUMNS, count - start)
        fills = PROBABILITY(np.asarray(strip.prob[start : start + here], dtype=float))
        ax.imshow(
            fills[None], extent=(0, here, y + 1, y), aspect="auto", interpolation="nearest",
            zorder=1,
        )  # fmt: skip
        ax.add_artist(Rectangle((0, y), here, 1, fill=False, edgecolor="#cccccc", linewidth=0.3))
        for x in np.flatnonzero(strip.boundary[start : start + here]):
            ax.add_artist(Rectangle((x, y + 0.9), 1, 0.17, color=INK, linewidth=0, zorder=4))
    for blank, color in ((False, INK), (True, PALE)):
        places = [n for n, sign in enumerate(signs) if (sign in BLANKS) is blank]
        corners = [(n % COLUMNS + 0.5, top + 1.92 + n // COLUMNS * LINE) for n in places]
        _text(ax, [signs[n] for n in places], corners, scale, color)


def _family(edition: Edition, kind: str) -> Picture:
    found = [sheet for sheet in sheets(edition.done) if sheet.family == kind]
    if not found:
        raise NothingToShow(f"no run has a heat map of {kind} text")
    figures = {}
    for sheet in found:
        stem = f"heatmap_{sheet.data}_{sheet.size}_{sheet.document}"
        figures[f"{stem}_{len(sheet.text)}" if stem in figures else stem] = draw(sheet)
    words = (
        "The same held-out bytes under every method, each from its lowest seed. Fill: probability "
        "of a boundary on the byte; bar below it: a boundary that was sampled, or set by the rule. "
        "\u00b7: a later byte of the character before it; \u25af: a byte that is no text, or a "
        "character without a font (Chinese and Japanese: the extra `scripts`). "
    )
    return Picture(figures, words + mark_words(edition.done), kinds=("png",), shown=False)


def prose(edition: Edition) -> Picture:
    """Held-out English under every method (the paper's prose heat maps)."""
    return _family(edition, "prose")


def code(edition: Edition) -> Picture:
    """Held-out source code under every method (the paper's code heat maps)."""
    return _family(edition, "code")


def planted(edition: Edition) -> Picture:
    """The planted language, where the right boundaries are known."""
    return _family(edition, "planted")


def other(edition: Edition) -> Picture:
    """Text of any other source."""
    return _family(edition, "other")
