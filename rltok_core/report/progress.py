"""`rltok progress --experiment E.yaml [--watch SECONDS]`: how far, and about how much remains.

One line, from the runs' own files: trainings done, those running and their share, bytes trained,
time since the first start, and an estimate from the measured bytes per second of each corpus and
method and the number of trainings that run side by side. Imports neither torch nor pandas.
"""

import argparse
import json
import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from rltok_core.config.experiment import read_experiment
from rltok_core.config.schema import RunConfig

# a run of another machine whose files haven't moved for this long isn't running (seconds)
STILL = 600.0
SHOWN = 4  # running trainings named in the line


@dataclass(frozen=True)
class State:
    """Where one run stands. bytes_total is steps x batch x (seq_len - 1), known beforehand."""

    run: RunConfig
    trained: bool
    evaluated: bool
    failed: bool
    running: bool
    step: int
    seconds: float
    started: float | None

    @property
    def bytes_total(self) -> int:
        training = self.run.training
        return training.steps * training.batch_size * (training.seq_len - 1)

    @property
    def bytes_done(self) -> int:
        return round(self.bytes_total * min(1.0, self.step / self.run.training.steps))

    @property
    def finished(self) -> bool:
        """Nothing is left to do. A score whose run was removed will be made again."""
        return self.failed or (self.trained and self.evaluated)

    @property
    def rate(self) -> float | None:
        """Planned bytes per second of training; None until measured."""
        return self.bytes_done / self.seconds if self.seconds > 0 and self.step > 0 else None


def last_record(path: Path) -> dict:
    """The last whole record of a metrics.jsonl, from the file's end; {} if there is none."""
    if not path.is_file():
        return {}
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 65536))
        lines = file.read().split(b"\n")
    # the part after the last newline is still being written
    for line in reversed(lines[:-1]):
        if line.strip():
            try:
                record = json.loads(line)
            except ValueError:
                return {}
            return record if isinstance(record, dict) else {}
    return {}


def _held(lock: Path, now: float, moved: float) -> bool:
    """Whether the process that training's lock names is there; only looks, never locks.

    The text stays behind where a holder was killed. A process of another machine can't be looked
    at: its files say whether it moves.
    """
    try:
        who = json.loads(lock.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    if who["host"] != socket.gethostname():
        return now - moved < STILL
    try:
        os.kill(who["pid"], 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's, so it is there
        return True
    return True


def state(run: RunConfig, results: Path, now: float) -> State:
    """Read one run's files."""
    folder = results / "runs" / run.id
    metrics = folder / "metrics.jsonl"
    trained = (folder / "training.json").is_file()
    failed = (folder / "failed.json").is_file() and not trained
    record = last_record(metrics)
    times = [path.stat().st_mtime for path in folder.glob("*") if path.is_file()]
    # config.yaml is written at the start, so it is the earliest
    holder_alive = _held(folder / "lock", now, max(times, default=0.0))
    return State(
        run=run,
        trained=trained,
        evaluated=(results / "evaluations" / run.id / "evaluation.json").is_file(),
        failed=failed,
        running=holder_alive and not trained and not failed,
        step=run.training.steps if trained else int(record.get("step", 0)),
        seconds=float(record.get("seconds", 0.0)),
        started=min(times, default=None),
    )


def remaining_seconds(states: list[State]) -> float | None:
    """Seconds of training that remain, side by side as now; None until a speed is measured.

    A run's speed is its own, else the mean of its (data, size, method), else of its (data, size),
    else of all.
    """
    keys = (
        lambda run: (run.data.name, run.model.size, run.estimator.label),
        lambda run: (run.data.name, run.model.size),
        lambda run: (),
    )
    speeds: dict[tuple, list[float]] = {}
    for one in states:
        if one.rate:
            for key in keys:
                speeds.setdefault(key(one.run), []).append(one.rate)
    left = [one for one in states if not (one.trained or one.failed)]
    if not left:
        return 0.0
    if not speeds:
        return None
    total = 0.0
    for one in left:
        known = (
            [one.rate]
            if one.rate
            else next(speeds[k(one.run)] for k in keys if k(one.run) in speeds)
        )
        total += (one.bytes_total - one.bytes_done) * len(known) / sum(known)
    return total / max(1, sum(one.running for one in states))


def _minutes(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def line(states: list[State], now: float) -> str:
    """The one line."""
    failed = sum(one.failed for one in states)
    done = sum(one.bytes_done for one in states if not one.failed)
    total = sum(one.bytes_total for one in states if not one.failed)
    parts = [f"trained {sum(one.trained for one in states)}/{len(states)}"]
    parts.append(f"evaluated {sum(one.evaluated for one in states)}/{len(states)}")
    if failed:
        parts.append(f"{failed} failed")
    running = [one for one in states if one.running]
    if running:
        names = [
            f"{one.run.data.name}/{one.run.estimator.label}/s{one.run.seed} "
            f"{100 * one.step / one.run.training.steps:.0f} %"
            for one in running[:SHOWN]
        ]
        more = f" and {len(running) - SHOWN} more" if len(running) > SHOWN else ""
        parts.append(f"running {', '.join(names)}{more}")
    parts.append(f"{done / 1e6:.1f} of {total / 1e6:.1f} MB")
    starts = [one.started for one in states if one.started is not None]
    if starts:
        parts.append(f"{_minutes(now - min(starts))} since the start")
    if all(one.finished for one in states):
        parts.append("complete")
        return " | ".join(parts)
    remaining = remaining_seconds(states)
    if remaining is None:
        parts.append("estimate in a moment")
    elif remaining == 0:
        parts.append("training done, evaluations remain")
    else:
        parts.append(f"about {_minutes(remaining)} of training remain")
    return " | ".join(parts)


def main(argv: list[str]) -> int:
    """Entry point of the command."""
    parser = argparse.ArgumentParser(prog="rltok progress", description=__doc__)
    parser.add_argument("--experiment", required=True, type=Path, help="the experiment's YAML")
    parser.add_argument("--results", type=Path, help="results folder (default: the experiment's)")
    parser.add_argument(
        "--watch", type=float, metavar="SECONDS", help="look again and print on every change"
    )
    args = parser.parse_args(argv)
    experiment, runs = read_experiment(args.experiment)
    results = Path(args.results or experiment.results)
    parent, shown = os.getppid(), None
    try:
        while True:
            now = time.time()
            states = [state(run, results, now) for run in runs]
            # the clock alone is no change
            seen = [(s.step, s.trained, s.evaluated, s.failed, s.running) for s in states]
            if seen != shown:
                print(line(states, now), flush=True)
                shown = seen
            if not args.watch or all(one.finished for one in states):
                return 0
            if os.getppid() != parent:
                return 0
            time.sleep(args.watch)
    except KeyboardInterrupt:
        return 0
