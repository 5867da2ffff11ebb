"""`rltok report --experiment E.yaml [--from DIR] [--out DIR] [--only NAME ...]`, or `figures`.

Tables, figures and the page, from whatever runs have left in the results folder: no model is
opened, and what failed or is missing is listed with its reason. `--from results/laptop` alone finds
the experiment that the folder's last workflow resolved.
"""

import argparse
from pathlib import Path

from rltok_core.errors import UserError
from rltok_core.files import write_whole
from rltok_core.report.collect import collect
from rltok_core.report.edition import Edition
from rltok_core.report.page import report_html
from rltok_core.report.products import PRODUCTS, product
from rltok_core.report.rows import BASELINE
from rltok_core.report.writing import Written, write_contents, write_product


def read_edition(experiment: Path, results: Path | None, baseline: str = BASELINE) -> Edition:
    """Collect an experiment's runs.

    Raises:
        UserError: no run at all, runs whose data differ, or a named baseline that isn't planned.
    """
    edition = Edition(collect(experiment, results), baseline)
    if baseline != BASELINE and baseline not in edition.collection.labels:
        known = ", ".join(edition.collection.labels)
        raise UserError(f"--baseline {baseline!r}: {experiment} has no such method; {known}")
    return edition


def write_report(edition: Edition, out: Path) -> tuple[list[Written], Path]:
    """Every product and report.html; what an earlier report left here and this one didn't goes.

    Raises:
        UserError: runs of one corpus scored different numbers of bytes.
    """
    written = [write_product(name, edition, out) for name in PRODUCTS]
    page = out / "report.html"
    write_whole(page, report_html(edition, written, out).encode())
    write_contents(written, out)
    return written, page


def find_experiment(results: Path) -> tuple[Path, Path]:
    """(experiment, results folder) of a folder that a workflow has filled.

    `results/laptop` may also be the experiment "laptop" of the folder `results`.

    Raises:
        UserError: there is none, or there are several and none is named.
    """
    resolved = results / "configs" / "experiments"
    beside = results.parent / "configs" / "experiments" / f"{results.name}.yaml"
    if not (results / "runs").is_dir() and beside.is_file():
        return beside, results.parent
    found = sorted(resolved.glob("*.yaml"))
    if len(found) != 1:
        names = ", ".join(str(results / path.stem) for path in found)
        which = f"one of: {names}" if found else "the experiment's YAML with --experiment"
        raise UserError(f"--from {results}: which experiment? Give {which}")
    return found[0], results


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="rltok report", description=__doc__)
    parser.add_argument("--experiment", type=Path, help="the experiment's YAML")
    parser.add_argument(
        "--from", "--results", dest="results", type=Path, metavar="DIR",
        help="results folder (default: the experiment's own)",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, help="where to write (default: the experiment's own)")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these tables or figures alone")
    parser.add_argument("--list", action="store_true", help="name every table and figure")
    parser.add_argument(
        "--baseline", default=BASELINE, metavar="LABEL",
        help="the method that differences are taken to (default: %(default)s)",
    )  # fmt: skip
    arguments = parser.parse_args(argv)
    if not (arguments.list or arguments.experiment or arguments.results):
        parser.error("give --experiment E.yaml, or --from with a results folder")
    return arguments


def main(argv: list[str]) -> int:
    """Entry point of the command."""
    args = _arguments(argv)
    if args.list:
        for name, one in PRODUCTS.items():
            print(f"{name:26s} {one.title}")
        return 0
    for name in args.only or []:
        product(name)
    experiment, results = args.experiment, args.results
    if experiment is None:
        experiment, results = find_experiment(results)
    edition = read_edition(experiment, results, args.baseline)
    out = Path(args.out or edition.collection.experiment.figures)
    if args.only:
        written, page = [write_product(name, edition, out) for name in args.only], None
    else:
        written, page = write_report(edition, out)
    for one in written:
        files = ", ".join(path.name for path in one.paths)
        print(f"{one.name:26s} {files or f'nothing to show: {one.missing}'}")
    print(f"{'report':26s} {page}" if page else f"{'in':26s} {out}")
    return 0
