"""`rltok prepare --config RUN.yaml --data DIR --out DIR`: what an estimator needs beforehand."""

import argparse
from pathlib import Path

from rltok_core.boundaries.registry import estimator_class
from rltok_core.config.experiment import read_run
from rltok_core.errors import UserError


def main(argv: list[str]) -> int:
    """Call the prepare() of the estimator that the run names.

    Raises:
        UserError: the estimator has nothing to prepare, its parameters or the data are wrong.
    """
    parser = argparse.ArgumentParser(prog="rltok prepare", description=main.__doc__.split("\n")[0])
    parser.add_argument("--config", type=Path, required=True, help="a resolved run")
    parser.add_argument("--data", type=Path, required=True, help="its data folder")
    parser.add_argument("--out", type=Path, required=True, help="where the files go")
    args = parser.parse_args(argv)
    run = read_run(args.config)
    cls = estimator_class(run.estimator)
    if cls.hint != "prepared":
        raise UserError(f"{args.config}: estimator {run.estimator.label!r} has nothing to prepare")
    try:
        cls.prepare(args.data, args.out, run.estimator.params, run.training.target_rate)
    except (TypeError, ValueError) as error:
        raise UserError(f"{args.config}: estimator {run.estimator.label!r}: {error}") from None
    print(f"prepared: {args.out / 'preparation.json'}")
    return 0
