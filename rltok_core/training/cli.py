"""`rltok train`: train one run, or go on with it; safe to interrupt and to run again."""

import argparse
from pathlib import Path

from rltok_core.config.experiment import read_run
from rltok_core.training.loop import train


def main(argv: list[str]) -> int:
    """0: complete; 75: saved on a signal, run me again; else see errors.py."""
    parser = argparse.ArgumentParser(prog="rltok train", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="resolved run (rltok resolve)")
    parser.add_argument("--data", type=Path, required=True, help="data folder (rltok data build)")
    parser.add_argument("--prepared", type=Path, help="prepared folder (rltok prepare)")
    parser.add_argument("--out", type=Path, required=True, help="run folder")
    arguments = parser.parse_args(argv)
    return train(read_run(arguments.config), arguments.data, arguments.out, arguments.prepared)
