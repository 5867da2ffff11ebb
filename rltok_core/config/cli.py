"""rltok resolve: an experiment's matrix, written out as one YAML a run.

    rltok resolve --experiment configs/experiments/laptop.yaml --out results/configs
    rltok resolve --experiment configs/experiments/laptop.yaml --list

Under --out: RUN_ID.yaml for each run, data/DATA_ID.yaml for each corpus, prepared/ID.yaml for each
preparation, experiments/NAME.yaml for the experiment. Files that would not change are left alone.
"""

import argparse
from pathlib import Path

from rltok_core.config.experiment import read_experiment, write_matrix


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="rltok resolve", description=__doc__.splitlines()[0])
    parser.add_argument("--experiment", required=True, type=Path, help="its YAML")
    parser.add_argument("--configs", type=Path, help="folder of data/, estimators/, sizes.yaml")
    parser.add_argument("--out", type=Path, help="where the resolved files go")
    parser.add_argument("--list", action="store_true", help="print the runs, write nothing")
    args = parser.parse_args(argv)
    experiment, runs = read_experiment(args.experiment, args.configs)
    if args.list:
        print("\n".join(run.id for run in runs))
        return 0
    if args.out is None:
        parser.error("--out is needed (or --list)")
    write_matrix(experiment, runs, args.out)
    print(f"{experiment.name}: {len(runs)} runs resolved in {args.out}")
    return 0
