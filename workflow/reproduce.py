"""What `make reproduce` runs: Snakemake on one experiment, from wherever an earlier run stopped.

    python workflow/reproduce.py laptop [--cores all] [any other option of Snakemake]

Waits for another Snakemake of this folder, ends jobs that a killed one left behind, removes its
lock, shows progress while Snakemake works, and names what was made. If some runs fail, the others
are still finished and reported; the exit code says so. Ctrl-C: training saves, then all ends.
"""

import argparse
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import yaml

GRACE_SECONDS = 60  # for a job to save and leave


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


def run(command: list[str], experiment: Path) -> int:
    """Run Snakemake with a progress display beside it; both end together, whatever happens."""
    watch = [sys.executable, "-m", "rltok_core", "progress", "--experiment", str(experiment)]
    watcher = subprocess.Popen([*watch, "--watch"])
    worker = subprocess.Popen(command)

    def stop(number, frame):
        """Ask the jobs to save and Snakemake to start no more; Ctrl-C reaches them by itself."""
        if number == signal.SIGTERM:
            for process in psutil.Process(worker.pid).children(recursive=True):
                process.terminate()
            worker.terminate()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return worker.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        watcher.terminate()
        watcher.wait()


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
    start = time.monotonic()
    make_way()
    if any(Path(".snakemake/locks").glob("*")):
        subprocess.run(
            snakemake("--unlock", "--configfile", str(path), "--quiet", "all"), check=True
        )
    quiet = ("--quiet", "host", "progress", "reason", "rules")
    code = run(snakemake("--cores", args.cores, "--configfile", str(path), *quiet, *options), path)
    figures = Path(yaml.safe_load(path.read_text(encoding="utf-8"))["figures"])
    if code and code > 0:
        print(
            "\nNot every run was finished; the table is made of those that were.", file=sys.stderr
        )
        report = ("report", "--experiment", str(path), "--out", str(figures))
        subprocess.run([sys.executable, "-m", "rltok_core", *report], check=False)
    minutes = (time.monotonic() - start) / 60
    print(f"\n{args.experiment}: {'done' if code == 0 else 'stopped'} after {minutes:.1f} minutes")
    for what, pattern in (("Table", "main_table.*"), ("Figures", "*.png"), ("Report", "*.html")):
        found = sorted(figures.glob(pattern))
        if found:
            print(f"{what:8s}" + "\n        ".join(map(str, found)))
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
