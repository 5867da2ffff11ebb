"""`rltok train`: train one run, or go on with it; safe to interrupt and to run again."""

import argparse
import os
from pathlib import Path

from rltok_core import slurm
from rltok_core.config.experiment import read_run
from rltok_core.config.schema import RunConfig
from rltok_core.errors import EXIT_REQUEUE, UserError
from rltok_core.training.launch import (
    follow_launcher,
    is_worker,
    launch,
    leave_code,
    ranks_wanted,
    slurm_nodes,
)
from rltok_core.training.loop import say, train
from rltok_core.training.ranks import OtherRank


def main(argv: list[str]) -> int:
    """0: complete; 75: saved on a signal, run me again; else see errors.py."""
    parser = argparse.ArgumentParser(prog="rltok train", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="resolved run (rltok resolve)")
    parser.add_argument("--data", type=Path, required=True, help="data folder (rltok data build)")
    parser.add_argument("--prepared", type=Path, help="prepared folder (rltok prepare)")
    parser.add_argument("--out", type=Path, required=True, help="run folder")
    parser.add_argument(
        "--ranks", type=int, help="processes; default: one a GPU (runtime.gpus), else one"
    )
    parser.add_argument(
        "--requeue",
        action="store_true",
        help="a SLURM job whose time is over goes back into the queue, once it has saved",
    )
    arguments = parser.parse_args(argv)
    run = read_run(arguments.config)
    if is_worker(os.environ):
        return _train(run, arguments)
    if given := slurm.allocation():
        say(given)
    ranks = ranks_wanted(arguments.ranks, run.runtime)
    code = launch(argv, ranks, slurm_nodes(os.environ)) if ranks > 1 else _train(run, arguments)
    first_node = os.environ.get("SLURM_NODEID", "0") == "0"  # one request is enough
    if code == EXIT_REQUEUE and arguments.requeue and first_node:
        news = slurm.run_again_if_time_is_over()
        if news:
            say(news)
    return code


def _train(run: RunConfig, arguments: argparse.Namespace) -> int:
    """This process's part of the training, and its code for whoever launched it."""
    follow_launcher()
    code = 1  # whatever isn't caught here is a traceback
    try:
        code = train(run, arguments.data, arguments.out, arguments.prepared)
    except OtherRank as error:
        code = error.code
    except UserError as error:
        code = error.code
        raise
    finally:
        if is_worker(os.environ):
            leave_code(code)
    return code
