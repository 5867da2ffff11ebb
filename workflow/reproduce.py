"""What `make reproduce` runs: Snakemake on one experiment, from wherever an earlier run stopped.

    python workflow/reproduce.py laptop [--cores all] [any other option of Snakemake]

Waits for another Snakemake of this folder, ends jobs that a killed one left behind, removes its
lock, shows progress while Snakemake works, and names what was made. One seed of every run comes
first, with tables and figures of its own; the other seeds follow (other options: all at once). If
some runs fail, the others are still finished and reported; the exit code says so. Ctrl-C: training
saves, then all ends.
"""

import argparse
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rltok_core.config.experiment import read_experiment
from rltok_core.config.schema import ExperimentConfig, RunConfig
from rltok_core.errors import UserError

GRACE_SECONDS = 60  # for a job to save and leave
WATCH_SECONDS = 15
MATTERS = re.compile(r"Error in rule|Logfile|=====|Nothing to be done|\w*(Error|Exception)\b.*[:]")


def here(process: psutil.Process) -> bool:
    """Whether a process works in this folder (one that can't be looked at doesn't)."""
    try:
        return process.cwd() == str(Path.cwd())
    except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
        return False


def snakemakes() -> list[psutil.Process]:
    """The living Snakemakes of this folder."""
    found = []
    for process in psutil.process_iter():
        if here(process):
            try:
                words = process.cmdline()[:3]
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
            if any(Path(word).name == "snakemake" for word in words):
                found.append(process)
    return found


def left_behind() -> list[psutil.Process]:
    """Jobs in this folder whose Snakemake is dead: it put its process id in their environment."""
    found = []
    for process in psutil.process_iter():
        if here(process):
            try:
                parent = process.environ().get("RLTOK_SNAKEMAKE")
                words = process.cmdline()
            except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                continue
            if parent and "rltok_core" in words and not psutil.pid_exists(int(parent)):
                found.append(process)
    return found


def make_way() -> None:
    """Leave this folder without a Snakemake, without its orphans and without its lock."""
    for process in snakemakes():
        print(f"Waiting for another Snakemake of this folder to end (pid {process.pid}) ...")
        process.wait()
    orphans = left_behind()
    for process in orphans:
        print(f"A killed run left a job behind (pid {process.pid}): asking it to save and end ...")
        process.terminate()
    for process in psutil.wait_procs(orphans, timeout=GRACE_SECONDS)[1]:
        process.kill()


def snakemake(*options: str) -> list[str]:
    return [sys.executable, "-m", "snakemake", *options]


def what_matters(lines: Iterable[str]) -> Iterator[str]:
    """Snakemake's output less its account of ordinary jobs: errors, the logs of failed jobs.

    Its own --quiet drops too much: with the account of the jobs go their errors.
    """
    shown = in_log = False
    for line in lines:
        if line.startswith("====="):
            in_log = shown and not in_log
        elif not in_log and not line.startswith(" "):
            shown = bool(MATTERS.match(line))
        if shown or in_log:
            yield line


def run(command: list[str], experiment: Path) -> tuple[int, bool]:
    """Run Snakemake with a progress display beside it; both end together, whatever happens.

    Returns:
        Its exit code, and whether a signal asked to stop.
    """
    watch = [sys.executable, "-m", "rltok_core", "progress", "--experiment", str(experiment)]
    watcher = subprocess.Popen([*watch, "--watch", str(WATCH_SECONDS)])
    worker = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    stopped = False

    def stop(number, frame):
        """The jobs save, Snakemake starts no more. Ctrl-C reaches them all by itself."""
        nonlocal stopped
        stopped = True
        if number == signal.SIGTERM:
            for process in psutil.Process(worker.pid).children(recursive=True):
                if "rltok_core" in process.cmdline():  # not the shell around it, which waits
                    process.terminate()
            worker.terminate()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for line in what_matters(worker.stdout):
            if not stopped:  # that jobs end when asked to is no news
                print(line, end="", flush=True)
        return worker.wait(), stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        watcher.terminate()
        watcher.wait()


def first_scores(experiment: ExperimentConfig, runs: list[RunConfig]) -> list[str]:
    """The scores of one seed of every run; none if that is all or if they are there already."""
    first: dict[str, RunConfig] = {}
    for run in runs:
        first.setdefault(run.model_copy(update={"seed": 0}).hash, run)
    # spelt as in evaluate.smk: Snakemake takes ./results and results/ for other places than results
    folder = f"{experiment.results}/evaluations"
    scores = [f"{folder}/{run.id}/evaluation.json" for run in first.values()]
    if len(scores) == len(runs) or all(Path(path).is_file() for path in scores):
        return []
    return scores


def report(path: Path) -> int:
    """`rltok report` on whatever runs there are."""
    command = [sys.executable, "-m", "rltok_core", "report", "--experiment", str(path)]
    return subprocess.run(command, check=False).returncode


def gather(path: Path, results: Path, figures: Path) -> Path:
    """`snakemake --report`: the same tables and figures, with the workflow's own record beside."""
    page = results / f"snakemake_report_{path.stem}.html"
    newest = figures / "report.html"
    if not page.is_file() or page.stat().st_mtime < newest.stat().st_mtime:
        options = ("--report", str(page), "--configfile", str(path), "--quiet", "all")
        done = subprocess.run(snakemake(*options), capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"snakemake --report failed:\n{done.stdout}{done.stderr}")
    return page


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("experiment", help="a name in configs/experiments")
    parser.add_argument("--cores", default="all")
    args, options = parser.parse_known_args()
    path = Path("configs/experiments") / f"{args.experiment}.yaml"
    if not path.is_file():
        names = ", ".join(sorted(p.stem for p in path.parent.glob("*.yaml")))
        print(f"no experiment {args.experiment!r} (there are: {names})", file=sys.stderr)
        return 2
    try:
        experiment, runs = read_experiment(path)
    except UserError as error:
        print(error, file=sys.stderr)
        return error.code
    start = time.monotonic()
    make_way()
    if any(Path(".snakemake/locks").glob("*")):
        unlock = ("--unlock", "--configfile", str(path), "--quiet", "all")
        subprocess.run(snakemake(*unlock), check=True)
    figures = Path(experiment.figures)
    first = [] if options else first_scores(experiment, runs)
    for targets in [first, []] if first else [[]]:
        command = snakemake("--cores", args.cores, *targets, "--configfile", str(path), *options)
        code, stopped = run(command, path)
        minutes = (time.monotonic() - start) / 60
        if stopped:
            print(f"\n{path.stem}: stopped after {minutes:.1f} minutes; run it again to go on")
            return code or 1
        if targets and not code and not report(path):
            print(
                f"\n{path.stem}: one seed of every run is done after {minutes:.1f} minutes; first "
                f"tables and figures in {figures}. Going on with the other seeds ...\n",
                flush=True,
            )
    if code:
        print("\nNot every run was finished; the tables are of those that were.", file=sys.stderr)
        report(path)
    print(f"\n{path.stem}: {'FAILED' if code else 'done'} after {minutes:.1f} minutes")
    for what, pattern in (("Table", "main_table.*"), ("Figures", "*.png"), ("Report", "*.html")):
        for found in sorted(figures.glob(pattern)):
            print(f"  {what:8s} {found}")
    if not code:
        print(f"  {'Gathered':8s} {gather(path, Path(experiment.results), figures)}")
    return code


if __name__ == "__main__":
    sys.exit(main())
