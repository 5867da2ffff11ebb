"""The explorer: texts and methods to choose, tokens side by side; data in the page, no network.

Used by report.html, and by `rltok segment --html` for a text of one's own.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path

from rltok_core.report.glyphs import glyphs

HERE = Path(__file__).parent
FEATURED = ("uniform", "bpe", "score_function", "hnet")  # ticked before the reader chooses
SCALE = (0, 25, 50, 75, 100)  # per cent, in the legend of the fill


@dataclass(frozen=True)
class Strip:
    """One method on one text: one value a byte.

    Attributes:
        name: the same for every text, so that a reader's choice is kept; shown: with its marks.
        prob: boundary probability, 0 to 1; boundary: 0 or 1; bits: cost of the byte.
    """

    name: str
    shown: str
    seed: int
    prob: list[float]
    boundary: list[int]
    bits: list[float]


@dataclass(frozen=True)
class Text:
    """A text under every method that has been run on it; `group` heads it in the list."""

    group: str
    title: str
    data: bytes
    strips: list[Strip]


def asset(name: str) -> str:
    """A file of the page's style or behaviour, from beside this module."""
    return (HERE / name).read_text(encoding="utf-8")


def _ticked(texts: Iterable[Text]) -> list[str]:
    names = list(dict.fromkeys(strip.name for text in texts for strip in text.strips))
    featured = [name for name in names if name in FEATURED]
    return featured if len(featured) > 1 else names[:4]


def _data(texts: list[Text], ticked: list[str]) -> str:
    values = [
        {
            "title": text.title,
            "signs": glyphs(text.data),
            "strips": [
                {
                    "name": strip.name,
                    "shown": strip.shown,
                    "seed": strip.seed,
                    "prob": [round(100 * value) for value in strip.prob],
                    "boundary": [int(value) for value in strip.boundary],
                    "bits": [round(value, 2) for value in strip.bits],
                }
                for strip in text.strips
            ],
        }
        for text in texts
    ]
    both = {"ticked": ticked, "texts": values}
    packed = json.dumps(both, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return packed.replace("<", "\\u003c")  # nothing in the data may end the script element


def explorer_html(texts: list[Text], ticked: list[str] | None = None) -> str:
    """The fragment with its data and script; a line of text where there is no text.

    ticked: names of the strips that are shown at first; by default a few that tell most.
    """
    if not texts:
        return '<p class="quiet">No run has boundaries on a text yet.</p>'
    groups: dict[str, list[str]] = {}
    for place, text in enumerate(texts):
        option = f'<option value="{place}">{escape(text.title)}</option>'
        groups.setdefault(text.group, []).append(option)
    options = "".join(
        f'<optgroup label="{escape(group)}">{"".join(each)}</optgroup>'
        for group, each in groups.items()
    )
    packed = _data(texts, _ticked(texts) if ticked is None else ticked)
    scale = "".join(f'<i style="--p:{step}">{step / 100:g}</i>' for step in SCALE)
    return f"""<div id="explorer">
<form class="controls" onsubmit="return false">
<div><label for="explorer-text">Text</label> <select id="explorer-text">{options}</select></div>
<fieldset><legend>Methods</legend><div class="methods"></div></fieldset>
</form>
<div class="scale">boundary probability {scale}
<span>rule to the left of a byte: a token starts; underlining in two tones: its extent;
\u2423 space, \u21b5 newline, \u2192 tab, \u00b7 a later byte of one character,
two small digits: a byte that isn't text</span></div>
<p class="readout" aria-live="polite"></p>
<div class="strips"></div>
<noscript><p>The explorer needs JavaScript (its own, in this page); the heat maps below show the
same without.</p></noscript>
</div>
<script type="application/json" id="explorer-data">{packed}</script>
<script>{asset("explorer.js")}</script>"""


def document_html(title: str, body: str, scripts: str = "") -> str:
    """A page of its own around a body: style inside, nothing fetched."""
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<style>{asset("page.css")}</style></head><body>
{body}
{scripts}</body></html>
"""
