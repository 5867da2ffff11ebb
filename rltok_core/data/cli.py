"""`rltok data build --config YAML --out DIR` and `rltok data inspect DIR`."""

import argparse
import time
from pathlib import Path

from rltok_core.config.experiment import read_run
from rltok_core.config.schema import DataConfig
from rltok_core.config.strict import parse, read_yaml
from rltok_core.data.build import build
from rltok_core.data.inspect import inspect


def main(argv: list[str]) -> int:
    """Run one of the two commands. Raises UserError on bad input."""
    parser = argparse.ArgumentParser(prog="rltok data", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("build", help="build a byte dataset")
    command.add_argument("--config", type=Path, required=True, help="a data YAML or a run's YAML")
    command.add_argument("--out", type=Path, required=True, help="the data folder to make")
    command = commands.add_parser("inspect", help="what is in a data folder; checks its hashes")
    command.add_argument("folder", type=Path)
    command.add_argument("--samples", type=int, default=3, help="documents shown a split")
    args = parser.parse_args(argv)
    if args.command == "inspect":
        print(inspect(args.folder, args.samples))
        return 0
    start = time.monotonic()
    manifest = build(read_data_config(args.config), args.out)
    parts = ", ".join(
        f"{split} {part['documents']:,} ({part['bytes'] / 1e6:.2f} MB)"
        for split, part in manifest["splits"].items()
    )
    dropped = ", ".join(f"{k} {v}" for k, v in manifest["counts"].items() if v and k != "kept")
    print(f"{args.out}: {parts}; {dropped or 'nothing dropped'}; {time.monotonic() - start:.1f} s")
    return 0


def read_data_config(path: Path) -> DataConfig:
    """The DataConfig of a data YAML, or of a resolved run's. Raises UserError."""
    values = read_yaml(path)
    return read_run(path).data if "data" in values else parse(DataConfig, values, str(path))
