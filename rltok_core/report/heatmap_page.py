"""heatmaps.html: the heat maps as one page that needs nothing else, a tab a corpus."""

from html import escape

from rltok_core.report.glyphs import NEWLINE, glyphs
from rltok_core.report.heatmaps import LEVELS, Sheet, Strip, level, level_color

STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff; margin: 0 auto;
       max-width: 76rem; padding: 1.5rem; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } h2 { font-size: 1.15rem; margin: 1.75rem 0 .5rem; }
h3 { font-size: .95rem; margin: 0; font-weight: 600; }
p { max-width: 46rem; } .quiet { color: #555; font-size: .85rem; font-weight: 400; }
.legend i { font-style: normal; padding: .1rem .55rem; border: 1px solid #bbb; }
.tabs > input { position: absolute; opacity: 0; }
.tabs > label { display: inline-block; padding: .4rem .9rem; border: 1px solid #bbb;
  border-radius: .4rem .4rem 0 0; cursor: pointer; background: #f3f3f3; margin-right: .2rem; }
.tabs > input:checked + label { background: #fff; border-bottom-color: #fff; font-weight: 600; }
.tabs > input:focus-visible + label { outline: 3px solid #0072b2; }
.tabs > section { display: none; border-top: 1px solid #bbb; margin-top: -1px; }
.strip { margin: 0 0 .9rem; }
pre { font: 14px/1.75 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; margin: .1rem 0;
      white-space: pre-wrap; overflow-wrap: anywhere; color: #222; }
pre i { font-style: normal; display: inline-block; min-width: 1ch; text-align: center;
        line-height: 1.35; border-bottom: 3px solid transparent; }
pre i.b { border-bottom-color: #222; } pre i.w { color: #444; }
pre i.h { font-size: .72em; line-height: 1.85; letter-spacing: -.03em; }
"""


def _bytes(text: bytes, strip: Strip) -> str:
    """One <i> a byte: class p0..p20 for the probability, b for a boundary, w for blanks."""
    parts = []
    for byte, sign, prob, boundary, bits in zip(
        text, glyphs(text), strip.prob, strip.boundary, strip.bits, strict=False
    ):
        kinds = [f"p{level(prob)}"] + (["b"] if boundary else [])
        kinds += ["w"] if byte in b" \n\t\r" else ["h"] if len(sign) > 1 else []
        title = f"p {prob:.2f}, {bits:.1f} bits"
        parts.append(f'<i class="{" ".join(kinds)}" title="{title}">{escape(sign)}</i>')
        if sign == NEWLINE:
            parts.append("\n")
    return "".join(parts)


def _sheet(sheet: Sheet) -> str:
    parts = [f"<h2>Test document {sheet.document}, first {len(sheet.text)} bytes</h2>"]
    for strip in sheet.strips:
        count = min(len(sheet.text), len(strip.boundary))
        rate = sum(strip.boundary[:count]) / max(1, count)
        bits = sum(strip.bits[:count]) / max(1, count)
        parts.append(
            f'<div class="strip"><h3>{escape(strip.name)} <span class="quiet">seed {strip.seed}, '
            f"{rate:.3f} boundaries a byte and {bits:.3f} bits per byte here</span></h3>"
            f"<pre>{_bytes(sheet.text, strip)}</pre></div>"
        )
    return "\n".join(parts)


def heatmap_html(title: str, found: list[Sheet], words: str) -> str:
    """The page. `words` explains the marks on the methods' names."""
    levels = "".join(
        f"pre i.p{step},.legend i.p{step}{{background:{level_color(step)}}}"
        for step in range(LEVELS + 1)
    )
    corpora = list(dict.fromkeys((sheet.data, sheet.size) for sheet in found))
    shown = "".join(f"#tab{n}:checked~#corpus{n}{{display:block}}" for n in range(len(corpora)))
    tabs, sections = [], []
    for n, corpus in enumerate(corpora):
        checked = " checked" if n == 0 else ""
        name = escape(f"{corpus[0]} ({corpus[1]})")
        tabs.append(
            f'<input type="radio" name="corpus" id="tab{n}"{checked}><label for="tab{n}">{name}'
            "</label>"
        )
        inside = "\n".join(_sheet(s) for s in found if (s.data, s.size) == corpus)
        sections.append(f'<section id="corpus{n}">{inside}</section>')
    legend = " ".join(
        f'<i class="p{step}">{step / LEVELS:g}</i>' for step in range(0, LEVELS + 1, 5)
    )
    body = "".join(tabs) + "\n".join(sections) if found else "<p>No run has a heat map yet.</p>"
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}: heat maps</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>{STYLE}{levels}{shown}</style></head><body>
<h1>{escape(title)}: where the boundaries go</h1>
<p>The same held-out bytes under every method. The fill is the probability of a boundary on the
byte, a bar below it a boundary that was sampled (or set by the rule). Point at a byte for its
probability and its cost in bits.</p>
<p class="legend">boundary probability {legend} &nbsp; \u2423 space, \u21b5 newline, \u2192 tab,
\u00b7 a later byte of one character, two small hexadecimal digits: a byte that isn't text.</p>
<p class="quiet">{escape(words)}</p>
<div class="tabs">{body}</div>
</body></html>
"""
