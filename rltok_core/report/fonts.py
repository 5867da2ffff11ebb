"""Which font draws a sign in a picture: only such as come with a package, the same on any machine.

DejaVu comes with matplotlib (Latin, Greek, Cyrillic, Hebrew, Arabic, signs), Noto Sans SC with
zhplot (Chinese and Japanese; the extra `scripts`). matplotlib's own choice for anything else is a
box with the name of the script.
"""

import importlib.util
from functools import cache
from pathlib import Path

from matplotlib.font_manager import FontProperties, findfont, get_font

MONO = "DejaVu Sans Mono"


@cache
def _files() -> list[Path]:
    files = [Path(findfont(FontProperties(family=name))) for name in (MONO, "DejaVu Sans")]
    zhplot = importlib.util.find_spec("zhplot")
    if zhplot is not None:
        files += sorted(Path(zhplot.origin).parent.glob("fonts/NotoSansSC-Regular.ttf"))
    return files


@cache
def _covered(file: Path) -> frozenset[int]:
    return frozenset(get_font(file).get_charmap())


def font_for(sign: str) -> FontProperties | None:
    """The first font that has every character of `sign`; None if none has."""
    wanted = set(map(ord, sign))
    return next((FontProperties(fname=file) for file in _files() if wanted <= _covered(file)), None)


def is_mono(font: FontProperties) -> bool:
    """Whether every sign of it is as wide as every other."""
    return font.get_file() == str(_files()[0])
