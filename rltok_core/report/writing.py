"""Writes what products make: tables as .csv, .md and .tex, pictures as .png, .svg and .pdf.

A label is text whatever it spells ("None", "NA", "null", "nan"): it keeps its row (K33), and a
reader in pandas needs `keep_default_na=False` to see it as written. The same runs give the same
bytes (K37): no date, no order of a set.
"""

import csv
import io
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from matplotlib import rc_context

from rltok_core.files import write_whole
from rltok_core.report.edition import Block, Edition, NothingToShow, Picture, Table
from rltok_core.report.latex import document
from rltok_core.report.products import product
from rltok_core.report.style import RC, save

CONTENTS = "contents.json"


@dataclass(frozen=True)
class Written:
    """A product as written; without paths and with a reason if it couldn't be made.

    Attributes:
        blocks, pictured: what the report's page shows of it.
    """

    name: str
    title: str
    caption: str = ""
    paths: list[Path] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    missing: str = ""
    pictured: bool = False

    @property
    def shown(self) -> list[Path]:
        """The pictures that the page shows."""
        return [path for path in self.paths if self.pictured and path.suffix == ".png"]


def write_product(name: str, edition: Edition, out: Path) -> Written:
    """Make one product and write its files.

    Raises:
        UserError: unknown name, or runs that can't share a table.
    """
    title, make = product(name).title, product(name).function()
    out.mkdir(parents=True, exist_ok=True)
    try:
        with rc_context(RC):
            made = make(edition)
            if isinstance(made, Picture):
                paths = _save_picture(name, made, out)
                return Written(name, title, made.caption, paths, pictured=made.shown)
    except NothingToShow as reason:
        return Written(name, title, missing=str(reason))
    return Written(
        name, title, made.caption, _save_table(name, made, edition, out),
        made.blocks if made.shown else [],
    )  # fmt: skip


def write_contents(written: list[Written], out: Path) -> None:
    """contents.json: files and captions of a whole report; what the last one left is removed.

    Only files that an earlier contents.json names are removed: they belong to other results.
    """
    path = out / CONTENTS
    try:
        earlier = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):  # none, or cut: whose files those were can't be told
        earlier = {}
    made = {
        one.name: {
            "title": one.title,
            "caption": one.caption,
            "files": [each.name for each in one.paths],
            "missing": one.missing,
        }
        for one in written
    }
    now = {file for one in made.values() for file in one["files"]}
    for file in {file for one in earlier.values() for file in one["files"]} - now:
        (out / Path(file).name).unlink(missing_ok=True)
    write_whole(path, (json.dumps(made, indent=1, ensure_ascii=False) + "\n").encode())


def _save_picture(name: str, made: Picture, out: Path) -> list[Path]:
    return [
        path
        for stem, figure in made.figures.items()
        for path in save(figure, out / (stem or name), made.kinds)
    ]


def _save_table(name: str, table: Table, edition: Edition, out: Path) -> list[Path]:
    gaps = [(r.run.id, f"{r.status}: {r.reason}") for r in edition.collection.gaps]
    texts = {"csv": csv_text(table.records, table.columns)}
    if table.blocks:
        texts["md"] = markdown(table, gaps)
        below = [f"{run}: {reason}" for run, reason in gaps]
        blocks = [(block.title, block.header, block.lines) for block in table.blocks]
        texts["tex"] = document(blocks, table.caption, below)
    for kind, text in texts.items():
        write_whole(out / f"{name}.{kind}", text.encode())
    return [out / f"{name}.{kind}" for kind in texts]


def csv_text(records: list[dict], columns: list[str] | None = None) -> str:
    """A csv with every record as one line.

    Raises:
        KeyError: a record lacks a column.
    """
    header = list(columns or records[0])
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    for record in records:
        writer.writerow([_field(record[key]) for key in header])
    return out.getvalue()


def _field(value: object) -> str:
    """Numbers at full precision, yes/no as true/false, nothing as an empty field."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(value)


def _md(text: str) -> str:
    """Escape what Markdown (and the HTML in it) would take for markup in a cell."""
    # an underscore inside a word is no markup, and names are full of them
    text = re.sub(r"[\\`*{}\[\]<>|]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\\g<0>", text)
    return text.replace("\n", " ")


def markdown(table: Table, gaps: list[tuple[str, str]]) -> str:
    """A table a block, then the caption and whatever didn't finish.

    Args:
        gaps: (run, reason).
    """
    parts = []
    for block in table.blocks:
        parts += [f"**{_md(block.title)}**", ""]
        parts.append("| " + " | ".join(map(_md, block.header)) + " |")
        parts.append("|---|" + "---:|" * (len(block.header) - 1))
        for line in block.lines:
            # brackets of an interval are no markup; only the name needs care
            cells = [_md(line[0]), *(cell.replace("|", "\\|") for cell in line[1:])]
            parts.append("| " + " | ".join(cells) + " |")
        parts.append("")
    parts += [_md(table.caption), ""]
    if gaps:
        parts += ["Failed or missing runs:", ""]
        parts += [f"- `{run}`: {_md(reason)}" for run, reason in gaps]
        parts.append("")
    return "\n".join(parts)
