"""rltok plan: what an experiment will cost, before anything runs.

    rltok plan --experiment configs/experiments/paper.yaml
    rltok plan --experiment ... --device h200 --utilisation 0.3 --micro-batch 16
    rltok plan --experiment ... --json

One line for all seeds of a row. Nothing is read but configuration files, and nothing is measured:
FLOPs are counted, hours follow from the utilisation that you state, memory is an estimate.
"""

import argparse
import json
from pathlib import Path

from rltok_core.config.experiment import read_experiment
from rltok_core.errors import UserError
from rltok_core.plan.devices import DEVICES, device
from rltok_core.plan.summary import UTILISATION, plan, table


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="rltok plan", description=__doc__.splitlines()[0])
    parser.add_argument("--experiment", required=True, type=Path, help="its YAML")
    parser.add_argument("--configs", type=Path, help="folder of data/, estimators/, sizes.yaml")
    parser.add_argument("--device", default="h100", help=f"one of {', '.join(DEVICES)}")
    parser.add_argument("--utilisation", type=float, default=UTILISATION, help="share of the peak")
    parser.add_argument("--micro-batch", type=int, help="sequences a forward pass, for every run")
    parser.add_argument("--json", action="store_true", help="every figure, unrounded")
    args = parser.parse_args(argv)
    if not 0 < args.utilisation <= 1:
        raise UserError(
            f"--utilisation {args.utilisation}: a share of the peak, above 0, at most 1"
        )
    if args.micro_batch is not None and args.micro_batch < 1:
        raise UserError(f"--micro-batch {args.micro_batch}: at least 1")
    experiment, runs = read_experiment(args.experiment, args.configs)
    given = (device(args.device), args.utilisation, args.micro_batch)
    planned = plan(experiment, runs, *given)
    print(json.dumps(planned, indent=1) if args.json else table(planned))
    return 0
