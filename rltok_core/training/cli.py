"""`rltok train`: train one run, or go on with it; safe to interrupt and to run again."""

import argparse
from pathlib import Path

from rltok_core import slurm
from rltok_core.config.experiment import read_run
from rltok_core.errors import EXIT_REQUEUE
from rltok_core.training.loop import say, train


def main(argv: list[str]) -> int:
    """0: complete; 75: saved on a signal, run me again; else see errors.py."""
    parser = argparse.ArgumentParser(prog="rltok train", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="resolved run (rltok resolve)")
    parser.add_argument("--data", type=Path, required=True, help="data folder (rltok data build)")
    parser.add_argument("--prepared", type=Path, help="prepared folder (rltok prepare)")
    parser.add_argument("--out", type=Path, required=True, help="run folder")
    parser.add_argument(
        "--requeue",
        action="store_true",
        help="a SLURM job whose time is over goes back into the queue, once it has saved",
    )
    arguments = parser.parse_args(argv)
    if given := slurm.allocation():
        say(given)
    run = read_run(arguments.config)
    code = train(run, arguments.data, arguments.out, arguments.prepared)
    if code == EXIT_REQUEUE and arguments.requeue and (news := slurm.run_again_if_time_is_over()):
        say(news)
    return code
