"""report.html: tables, figures, heat maps, provenance and gaps on one page that needs nothing else.

Pictures are embedded; the page holds no date of its own, so the same results give the same page.
"""

import base64
import csv
from html import escape
from pathlib import Path

from rltok_core.report.collect import Collection
from rltok_core.report.edition import Edition
from rltok_core.report.writing import Written

STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.55 system-ui, sans-serif; color: #222; background: #fff; margin: 0 auto;
       max-width: 64rem; padding: 1.5rem; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .3rem; }
h2 { font-size: 1.3rem; margin: 2.6rem 0 .6rem; border-bottom: 1px solid #ddd; }
h3 { font-size: 1rem; margin: 1.4rem 0 .4rem; }
a { color: #005a8c; } nav { margin-bottom: 1rem; }
nav a { margin-right: 1rem; white-space: nowrap; }
p, li { max-width: 50rem; } .quiet, figcaption { color: #555; font-size: .88rem; }
figure { margin: 1.4rem 0 2rem; } figure img { max-width: 100%; height: auto; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .84rem; font-variant-numeric: tabular-nums; }
th, td { padding: .28rem .6rem; text-align: right; border-bottom: 1px solid #e4e4e4;
         white-space: nowrap; }
th { border-bottom: 2px solid #999; vertical-align: bottom; white-space: normal; }
th:first-child, td:first-child { text-align: left; } td:first-child { font-weight: 600; }
.provenance td, .provenance th { text-align: left; font-size: .75rem; font-weight: 400; }
.gaps { background: #fdf1e3; border-left: 4px solid #d55e00; padding: .5rem 1rem; }
code { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: .88em; }
"""


def html_table(header: list[str], lines: list[list[str]], kind: str = "") -> str:
    """A table of plain texts, escaped."""
    top = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "\n".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>" for line in lines
    )
    return (
        f'<div class="wide"><table class="{kind}"><thead><tr>{top}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _image(path: Path, words: str) -> str:
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    return f'<img alt="{escape(words)}" src="data:image/png;base64,{data}">'


def _section(written: Written) -> str:
    """One product: its tables or pictures, caption and files."""
    if written.missing:
        reason = f"Nothing to show: {written.title} ({written.missing})."
        return f'<p class="quiet">{escape(reason)}</p>'
    parts = [f'<section id="{written.name}"><h3>{escape(written.title)}</h3>']
    for block in written.blocks:
        parts += [f"<h4>{escape(block.title)}</h4>", html_table(block.header, block.lines)]
    for path in written.paths:
        if path.suffix == ".png":
            parts.append(f"<figure>{_image(path, written.title)}</figure>")
    links = ", ".join(f'<a href="{escape(p.name)}">{escape(p.name)}</a>' for p in written.paths)
    parts.append(f'<p class="quiet">{escape(written.caption)} ({links})</p></section>')
    return "".join(parts)


def _gaps(collection: Collection) -> str:
    done, planned = len(collection.complete), len(collection.results)
    if not collection.gaps:
        return f"<p>All {planned} planned runs are complete.</p>"
    lines = "".join(
        f"<li><code>{escape(r.run.id)}</code>: {r.status}: {escape(r.reason)}</li>"
        for r in collection.gaps
    )
    return (
        f'<div class="gaps"><p>{done} of {planned} planned runs are complete and in the tables. '
        f"These are not:</p><ul>{lines}</ul></div>"
    )


def _provenance(path: Path) -> str:
    """A readable extract of provenance.csv: hashes cut to eight digits."""
    with path.open(encoding="utf-8", newline="") as file:
        records = list(csv.DictReader(file))
    shown = ["run", "status", "run_hash", "data_hash", "code_version", "device_name"]
    lines = [
        [record[key][:8] if key.endswith("_hash") else record[key][:60] for key in shown]
        for record in records
    ]
    return html_table(shown, lines, "provenance")


def report_html(edition: Edition, written: list[Written], out: Path) -> str:
    """The page; `out` is the folder that holds the files that products were written to."""
    title, collection = edition.title, edition.collection
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="quiet">Experiment <code>{escape(collection.experiment.name)}</code></p>',
        _gaps(collection),
        *map(_section, written),
        '<h2 id="runs">Runs and provenance</h2>',
        _provenance(out / "provenance.csv"),
    ]
    body = "\n".join(parts)
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>{STYLE}</style></head><body>
{body}
</body></html>
"""
