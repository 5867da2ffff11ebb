"""The page's last part: every row's runs, what their manifests say, links to their folders."""

import os
from html import escape
from pathlib import Path

from rltok_core.report.collect import Result
from rltok_core.report.edition import Edition
from rltok_core.report.reading import method, number
from rltok_core.report.rows import Row

HEADER = ["run", "status", "test BPB", "run hash", "data", "code", "device", "files"]


def anchor(row: Row, edition: Edition) -> str:
    """The id of a row's place on the page."""
    place = next(i for i, other in enumerate(edition.rows) if other is row)
    return f"runs-{place}"


def _code(manifest: dict) -> str:
    code = manifest.get("code")
    if not isinstance(code, dict):
        return str(code or "")
    commit = str(code.get("commit") or code.get("version") or "")[:10]
    return commit + (" with changes" if code.get("dirty") else "")


def _files(result: Result, out: Path) -> str:
    """Links to the run's own files, those that are there; relative, so that folders can move."""
    paths = [
        *(result.folder / name for name in ("manifest.json", "training.json", "config.yaml")),
        result.evaluation_folder / "evaluation.json",
    ]
    links = [
        f'<a href="{escape(os.path.relpath(path, out).replace(os.sep, "/"))}">{path.name}</a>'
        for path in paths
        if path.is_file()
    ]
    return ", ".join(links) or "none"


def _run(result: Result, out: Path) -> str:
    manifest = result.training.get("manifest", {})
    device = " ".join(str(manifest.get(key, "")) for key in ("device", "device_name")).strip()
    bpb = result.evaluation.get("bpb")
    cells = [
        f"<code>{escape(result.run.id)}</code>",
        escape(f"{result.status}: {result.reason}" if result.reason else result.status),
        number(bpb, 6) if isinstance(bpb, float) else "",
        f"<code>{result.run.hash[:12]}</code>",
        f"<code>{escape(result.data_hash[:12])}</code>",
        f"<code>{escape(_code(manifest))}</code>",
        escape(device),
        _files(result, out),
    ]
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def runs_html(edition: Edition, out: Path) -> str:
    """One folded part a row, its runs inside; `out` is where the page lies."""
    top = "".join(f'<th scope="col">{name}</th>' for name in HEADER)
    parts = []
    for row in edition.rows:
        counts = f"{len(row.done)} of {len(row.results)} runs"
        title = f"{row.data}, {row.size}: {method(row)} ({counts})"
        body = "".join(_run(result, out) for result in row.results)
        parts.append(
            f'<details id="{anchor(row, edition)}"><summary>{escape(title)}</summary>'
            f'<div class="wide" tabindex="0"><table><thead><tr>{top}</tr></thead>'
            f"<tbody>{body}</tbody></table></div></details>"
        )
    return "\n".join(parts)
