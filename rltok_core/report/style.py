"""How every figure looks: one style sheet, and a colour, marker and dash a method, always the same.

Colours are from Okabe & Ito and from Paul Tol's muted set, told apart with the common forms of
colour blindness; markers and dashes tell the lines apart in grey print too. A method that isn't
in the list gets a style from its label's hash, so it keeps it from figure to figure.
"""

import hashlib
import io
from dataclasses import dataclass
from pathlib import Path

import matplotlib
from PIL import Image

from rltok_core.files import write_whole

matplotlib.use("Agg")

from matplotlib import pyplot as plt  # noqa: E402  (the backend is chosen first)
from matplotlib.figure import Figure  # noqa: E402

INK, SOFT, FAINT = "#222222", "#6b6b6b", "#d9d9d9"
FULL_WIDTH, COLUMN_WIDTH = 6.75, 3.25  # inches: ICML's text width and column width

# one file, so that a notebook's figures can have the same look: plt.style.use(STYLE_SHEET)
STYLE_SHEET = Path(__file__).with_name("paper.mplstyle")
RC = matplotlib.rc_params_from_file(STYLE_SHEET, use_default_template=False)


@dataclass(frozen=True)
class MethodStyle:
    """One method's look; hollow markers belong to variants and to unknown methods."""

    color: str
    marker: str
    dash: str | tuple = "-"
    hollow: bool = False

    def line(self) -> dict:
        """Keywords for Axes.plot."""
        face = "white" if self.hollow else self.color
        return {
            "color": self.color,
            "marker": self.marker,
            "linestyle": self.dash,
            "markerfacecolor": face,
            "markeredgecolor": self.color,
            "markeredgewidth": 0.9,
        }


_DASH, _DOT, _DASHDOT = (0, (4, 1.6)), (0, (1, 1.3)), (0, (5, 1.3, 1, 1.3))

KNOWN = {
    "uniform": MethodStyle("#777777", "o"),
    "stride": MethodStyle("#999933", "s", _DASH),
    "whitespace": MethodStyle("#44aa99", "^", _DASH),
    "bpe": MethodStyle("#117733", "D"),
    "bpe_causal": MethodStyle("#117733", "D", _DASH, hollow=True),
    "entropy": MethodStyle("#cc79a7", "p", _DASH),
    "pooling": MethodStyle("#882255", "X"),
    "hnet": MethodStyle("#0072b2", "v"),
    "score_function": MethodStyle("#d55e00", "P"),
    "score_function_w1": MethodStyle("#e69f00", "h", _DASH),
    "oracle": MethodStyle("#000000", "*"),
    "truth": MethodStyle("#000000", "*"),
    "no_mid": MethodStyle("#000000", "x", _DOT),
}
_COLORS = ("#332288", "#56b4e9", "#cc6677", "#aa4499", "#009e73", "#b79f00", "#8c510a", "#5e3c99")
_MARKERS = tuple("os^vDPXh<>")
_DASHES = ("-", _DASH, _DASHDOT)


def method_styles(labels: list[str]) -> dict[str, MethodStyle]:
    """A style for every label; no two alike. The same set of labels gives the same styles."""
    styles = {label: KNOWN[label] for label in labels if label in KNOWN}
    taken = set(styles.values())
    for label in sorted(set(labels) - set(KNOWN)):
        place = int.from_bytes(hashlib.sha256(label.encode()).digest()[:6], "big")
        style = _unknown(place)
        while style in taken:
            place += 1
            style = _unknown(place)
        taken.add(style)
        styles[label] = style
    return styles


def _unknown(place: int) -> MethodStyle:
    """Style number `place` of the hollow ones: 240 before they repeat."""
    place, color = divmod(place, len(_COLORS))
    place, marker = divmod(place, len(_MARKERS))
    return MethodStyle(_COLORS[color], _MARKERS[marker], _DASHES[place % len(_DASHES)], True)


def panels(columns: int, height: float, rows: int = 1, **keywords) -> tuple[Figure, list]:
    """A figure of rows x columns axes under RC: (figure, axes as a 2-d array)."""
    width = COLUMN_WIDTH + 1 if columns == 1 else FULL_WIDTH
    return plt.subplots(
        rows, columns, figsize=(width, height), squeeze=False, layout="constrained", **keywords
    )


def legend_below(figure: Figure, handles: list, columns: int = 4) -> None:
    """One legend of every curve under all panels."""
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, handlelength=2.6)


def save(figure: Figure, stem: Path, kinds: tuple[str, ...] = ("png", "svg", "pdf")) -> list[Path]:
    """Write stem.png, .svg and .pdf without dates: the same figure is the same file."""
    undated = {
        "svg": {"Date": None, "Creator": None},
        "pdf": {"CreationDate": None, "ModDate": None, "Producer": None, "Creator": None},
    }
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in kinds]
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # laid out once, not once a format
    for path, kind in zip(paths, kinds, strict=True):
        buffer = io.BytesIO()
        if kind == "png":
            _save_png(figure, buffer)
        else:
            figure.savefig(buffer, format=kind, metadata=undated[kind])
        write_whole(path, buffer.getbuffer())
    plt.close(figure)
    return paths


def _save_png(figure: Figure, file: io.BytesIO) -> None:
    """A PNG of 256 colours: a third of the size, no visible difference in flat graphics."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format="rgba")  # not by way of a PNG that is read again
    width, height = (int(size * plt.rcParams["savefig.dpi"]) for size in figure.get_size_inches())
    image = Image.frombytes("RGBA", (width, height), drawn.getvalue()).convert("RGB")
    image.quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(
        file, format="PNG", optimize=True
    )
