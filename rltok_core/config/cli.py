"""rltok resolve: an experiment's matrix, written out as one YAML a run.

    rltok resolve --experiment configs/experiments/laptop.yaml --out results/configs
    rltok resolve --experiment configs/experiments/laptop.yaml --list

Under --out: RUN_ID.yaml for each run, data/DATA_ID.yaml for each corpus, prepared/ID.yaml for each
preparation, experiments/NAME.yaml for the experiment. Files that would not change are left alone.
"""

import argparse
import json
import sys
from pathlib import Path

from rltok_core.config.experiment import (
    CONFIGS,
    load_experiment,
    preparations,
    read_experiment,
    write_run,
    write_yaml,
)
from rltok_core.errors import UserError


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="rltok resolve", description=__doc__.splitlines()[0])
    parser.add_argument("--experiment", required=True, help="its YAML; -: JSON on standard input")
    parser.add_argument("--configs", type=Path, help="folder of data/, estimators/, sizes.yaml")
    parser.add_argument("--out", type=Path, help="where the resolved files go")
    parser.add_argument("--list", action="store_true", help="print the runs, write nothing")
    args = parser.parse_args(argv)
    if args.experiment == "-":
        try:
            values = json.load(sys.stdin)
        except json.JSONDecodeError as error:
            raise UserError(f"standard input: not valid JSON: {error}") from None
        experiment, runs = load_experiment(values, "standard input", args.configs or CONFIGS)
    else:
        experiment, runs = read_experiment(Path(args.experiment), args.configs)
    if args.list:
        print("\n".join(run.id for run in runs))
        return 0
    if args.out is None:
        parser.error("--out is needed (or --list)")
    write_yaml(
        experiment.model_dump(mode="json"), args.out / "experiments" / f"{experiment.name}.yaml"
    )
    for run in runs:
        write_run(run, args.out / f"{run.id}.yaml")
        write_yaml(run.data.model_dump(mode="json"), args.out / "data" / f"{run.data.id}.yaml")
    for name, run in preparations(runs).items():
        write_run(run, args.out / "prepared" / f"{name}.yaml")
    print(f"{experiment.name}: {len(runs)} runs resolved in {args.out}")
    return 0
