"""`rltok report --experiment E.yaml [--results DIR] [--out DIR]`: tables, figures, heat maps, page.

Works from whatever runs exist: what failed or is missing is listed with its reason.
"""

import argparse
from pathlib import Path

from rltok_core.report.collect import collect
from rltok_core.report.curriculum import write_curriculum
from rltok_core.report.figures import FIGURES, write_figures
from rltok_core.report.heatmap_page import heatmap_html
from rltok_core.report.heatmaps import sheets, write_pictures
from rltok_core.report.page import report_html
from rltok_core.report.reading import MARKS, marks
from rltok_core.report.rows import rows
from rltok_core.report.style import RC, method_styles, plt
from rltok_core.report.tables import write_tables


def write_report(experiment: Path, results: Path | None, out: Path | None) -> list[Path]:
    """Write the whole report; return the paths, report.html first.

    Always written: main_table.csv/.md/.tex, paired_differences.csv, provenance.csv,
    heatmaps.html, report.html. A figure that nobody recorded the numbers of is left out and the
    page says so.

    Raises:
        UserError: no run at all, or runs whose data differ.
    """
    collection = collect(experiment, results)
    all_rows = rows(collection)
    out = Path(out or collection.experiment.figures)
    tables, blocks, words = write_tables(collection, all_rows, out)
    tables += write_curriculum(all_rows, out)
    figures = write_figures(all_rows, method_styles([row.name for row in all_rows]), out)
    found = sheets(all_rows)
    with plt.rc_context(RC):
        pictures = write_pictures(found, out)
    # one document a corpus on the page, in full on heatmaps.html
    first = {
        (sheet.data, sheet.size): path
        for sheet, path in reversed(list(zip(found, pictures, strict=True)))
    }
    shown = [path for path in pictures if path in first.values()]
    used = {mark for row in all_rows for mark in marks(row)}
    signs = " ".join(f"{sign} {text}." for name, (sign, text) in MARKS.items() if name in used)
    title = collection.experiment.title or collection.experiment.name
    (out / "heatmaps.html").write_text(heatmap_html(title, found, signs), encoding="utf-8")
    page = report_html(collection, blocks, words, figures, shown, out)
    (out / "report.html").write_text(page, encoding="utf-8")
    _remove_old(out, {path.name for figure in figures for path in figure.paths}, pictures)
    drawn = [path for figure in figures for path in figure.paths]
    return [out / "report.html", *tables, *drawn, out / "heatmaps.html", *pictures]


def _remove_old(out: Path, drawn: set[str], pictures: list[Path]) -> None:
    """Remove what an earlier report drew and this one didn't: it belongs to other results."""
    kinds = ("png", "svg", "pdf")
    own = [out / f"{name}.{kind}" for name in FIGURES for kind in kinds]
    for path in [*own, *out.glob("heatmap_*.png")]:
        if path.name not in drawn and path not in pictures:
            path.unlink(missing_ok=True)


def main(argv: list[str]) -> int:
    """Entry point of the command."""
    parser = argparse.ArgumentParser(prog="rltok report", description=__doc__)
    parser.add_argument("--experiment", required=True, type=Path, help="the experiment's YAML")
    parser.add_argument("--results", type=Path, help="results folder (default: the experiment's)")
    parser.add_argument("--out", type=Path, help="where to write (default: the experiment's)")
    args = parser.parse_args(argv)
    paths = write_report(args.experiment, args.results, args.out)
    print(f"table    {paths[1].with_suffix('.md')} (.csv, .tex)")
    for path in paths:
        if path.suffix == ".png":
            print(f"figure   {path}")
    print(f"heatmaps {paths[0].with_name('heatmaps.html')}")
    print(f"report   {paths[0]}")
    return 0
