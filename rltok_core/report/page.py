"""report.html: the question, tables, explorer, figures and every run, on one page of its own.

Pictures, style, data and scripts are inside; nothing is fetched, and the page opens from disk. It
holds no date, so the same results give the same page.
"""

import base64
import re
from html import escape
from pathlib import Path

from rltok_core.report.collect import Collection
from rltok_core.report.edition import Block, Edition
from rltok_core.report.explorer import asset, document_html, explorer_html
from rltok_core.report.heatmaps import texts
from rltok_core.report.runs import anchor, runs_html
from rltok_core.report.writing import Written

QUESTION = (
    "A byte-level language model shortens its sequence inside the network: where should the token "
    "boundaries go? Here rules and learned policies answer in one network at one target rate, with "
    "the numbers published by Dauncey & Wattenhofer (ICML 2026) beside ours."
)
FIRST = "main_table"  # before everything else


def table_html(block: Block, edition: Edition) -> str:
    """A readable table; every number is a link to the runs that it comes from."""
    top = "".join(f'<th scope="col">{escape(name)}</th>' for name in block.header)
    body = []
    for (name, *cells), row in zip(block.lines, block.rows, strict=True):
        where = row and row.done and anchor(row, edition)
        shown = "".join(f"<td>{_cell(cell, where)}</td>" for cell in cells)
        body.append(f'<tr><th scope="row">{escape(name)}</th>{shown}</tr>')
    lines = "\n".join(body)
    # the region scrolls by itself on a narrow screen: the keyboard must reach it
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(block.title)}"><table>'
        f"<caption>{escape(block.title)}</caption><thead><tr>{top}</tr></thead>"
        f"<tbody>{lines}</tbody></table></div>"
    )


def _cell(text: str, where: str | None) -> str:
    linked = where and re.search(r"\d", text)
    return f'<a href="#{where}">{escape(text)}</a>' if linked else escape(text)


def _image(path: Path, words: str) -> str:
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    return f'<img alt="{escape(words)}" src="data:image/png;base64,{data}">'


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[.;])\s", text, maxsplit=1)[0].rstrip(";.")


def _files(written: Written) -> str:
    links = (f'<a href="{escape(path.name)}">{escape(path.name)}</a>' for path in written.paths)
    return "Files: " + ", ".join(links)


def _table(written: Written, edition: Edition) -> str:
    tables = "".join(table_html(block, edition) for block in written.blocks)
    return (
        f'<section id="{written.name}"><h3>{escape(written.title)}</h3>{tables}'
        f'<p class="quiet">{escape(written.caption)}</p>'
        f'<p class="quiet">{_files(written)}</p></section>'
    )


def _figure(written: Written) -> str:
    words = f"{written.title}. {_first_sentence(written.caption)}; described below."
    images = "".join(_image(path, words) for path in written.shown)
    return (
        f'<figure id="{written.name}"><h3>{escape(written.title)}</h3>{images}'
        f"<figcaption>{escape(written.caption)}<br>{_files(written)}</figcaption></figure>"
    )


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


def report_html(edition: Edition, written: list[Written], out: Path) -> str:
    """The page; `out` is the folder where it will lie, beside the products' files."""
    tables = [one for one in written if one.blocks]
    first = [one for one in tables if one.name == FIRST]
    figures = [one for one in written if one.shown]
    missing = [one for one in written if one.missing]
    others = [one for one in written if one.paths and not (one.blocks or one.shown)]
    parts = {
        "results": ("Results", [_table(one, edition) for one in first]),
        "explorer-part": (
            "Explorer",
            [
                "<p>Held-out text, byte by byte: choose a text and methods, and see where each "
                "puts its boundaries, how sure it was, and how long the tokens are.</p>",
                explorer_html(texts(edition.done)),
            ],
        ),
        "tables": ("More tables", [_table(one, edition) for one in tables if one not in first]),
        "figures": ("Figures", list(map(_figure, figures))),
        "rest": (
            "Other files, and what is missing",
            [
                "<ul>",
                *(f"<li>{escape(one.title)}: {_files(one)}</li>" for one in others),
                *(f"<li>{escape(one.title)}: {escape(one.missing)}</li>" for one in missing),
                '<li><a href="contents.json">contents.json</a>: every file and caption</li></ul>',
            ],
        ),
        "runs": (
            "Runs",
            [
                "<p>Every number above links to its runs here. The links to manifests lead into "
                "the results folder, which may be elsewhere; what identifies a run is printed.</p>",
                runs_html(edition, out),
            ],
        ),
    }
    nav = "".join(f'<li><a href="#{key}">{title}</a></li>' for key, (title, _) in parts.items())
    sections = "\n".join(
        f'<section aria-labelledby="{key}"><h2 id="{key}">{title}</h2>\n'
        + "\n".join(inside)
        + "</section>"
        for key, (title, inside) in parts.items()
    )
    body = f"""<a class="skip" href="#results">Skip to the results</a>
<header><h1>{escape(edition.title)}</h1>
<p class="lead">{escape(QUESTION)}</p>
<p class="quiet">Experiment <code>{escape(edition.collection.experiment.name)}</code></p>
<nav aria-label="Parts of the page"><ul>{nav}</ul></nav></header>
<main>{_gaps(edition.collection)}
{sections}</main>"""
    return document_html(edition.title, body, f"<script>{asset('links.js')}</script>")
