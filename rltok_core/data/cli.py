"""Build byte datasets and look into them.

rltok data build --config YAML --out DIR            all of it, or what is missing of it
rltok data shard --config YAML --out DIR --index 3  one part, which `build` then joins
rltok data inspect DIR [--picture lengths.png]
"""

import argparse
import time
from pathlib import Path

from rltok_core.config.experiment import read_run
from rltok_core.config.schema import DataConfig
from rltok_core.config.strict import parse, read_yaml
from rltok_core.data.build import build, make_shard
from rltok_core.data.inspect import inspect, picture
from rltok_core.data.shards import DROPPED


def main(argv: list[str]) -> int:
    """Run one of the commands. Raises UserError on bad input."""
    parser = argparse.ArgumentParser(
        prog="rltok data", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    build_command = commands.add_parser("build", help="build a byte dataset, or the rest of it")
    shard_command = commands.add_parser("shard", help="make one part of a dataset beforehand")
    for command in (build_command, shard_command):
        command.add_argument("--config", type=Path, required=True, help="a data or a run's YAML")
        command.add_argument("--out", type=Path, required=True, help="the data folder to make")
    shard_command.add_argument("--index", type=int, required=True, help="which part, from 0")
    command = commands.add_parser("inspect", help="what is in a data folder; checks its hashes")
    command.add_argument("folder", type=Path)
    command.add_argument("--samples", type=int, default=3, help="documents shown a split")
    command.add_argument("--picture", type=Path, help="draw the lengths into this .png")
    args = parser.parse_args(argv)
    if args.command == "inspect":
        print(inspect(args.folder, args.samples))
        if args.picture:
            picture(args.folder, args.picture)
        return 0
    start = time.monotonic()
    config = read_data_config(args.config)
    if args.command == "shard":
        made = make_shard(config, args.out, args.index)
        size, what = made["bytes"], f"{made['documents']:,} documents"
        counts = made["counts"]
    else:
        manifest = build(config, args.out)
        counts, size = manifest["counts"], sum(p["bytes"] for p in manifest["splits"].values())
        what = ", ".join(
            f"{split} {part['documents']:,} ({part['bytes'] / 1e6:.2f} MB)"
            for split, part in manifest["splits"].items()
        )
    seconds = time.monotonic() - start
    print(f"{args.out}: {what}; {words(counts)}; {seconds:.1f} s, {size / 1e6 / seconds:.1f} MB/s")
    return 0


def words(counts: dict[str, int]) -> str:
    """What was read, and what of it was dropped."""
    dropped = [f"{name} {counts[name]:,}" for name in DROPPED if counts[name]]
    return f"{counts['read']:,} read, " + (
        f"dropped: {', '.join(dropped)}" if dropped else "all kept"
    )


def read_data_config(path: Path) -> DataConfig:
    """The DataConfig of a data YAML, or of a resolved run's. Raises UserError."""
    values = read_yaml(path)
    return read_run(path).data if "data" in values else parse(DataConfig, values, str(path))
