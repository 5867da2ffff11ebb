"""`rltok bench [--device cpu|cuda]`: how fast the kernels are, against references, in one run.

cpu: ours against plain references (tests/reference): medians, ratios, goals; about three minutes
on two cores. cuda: correctness of each kernel against float64, then speed of the paper's sizes as
a share of a measured matmul peak; at most eight minutes; without a GPU it says so and exits 1.
"""

import argparse
import sys
import time
from pathlib import Path

import torch

from rltok_core.bench import cpu
from rltok_core.bench.table import comparison_table
from rltok_core.config.schema import RuntimeConfig
from rltok_core.errors import UserError
from rltok_core.files import write_json
from rltok_core.model import kernels
from rltok_core.training.manifest import code_version, device_name, package_versions


def say(message: str) -> None:
    print(f"rltok bench: {message}", file=sys.stderr, flush=True)


def _machine(device: str, threads: int) -> dict:
    return {
        "device": device,
        "device_name": device_name(device),
        "threads": threads,
        "code": code_version(),
        "packages": package_versions(),
    }


def _bench_cpu(scale: cpu.Scale, only: list[str]) -> dict:
    found = []
    for name in only or cpu.CASES:
        began = time.monotonic()
        found += cpu.CASES[name](scale)
        say(f"{name}: {time.monotonic() - began:.0f} s")
    print(comparison_table(found))
    return {"comparisons": [one.record() for one in found]}


def main(argv: list[str]) -> int:
    """0; 1 without the GPU that was asked for. A missed goal is a figure, not a failure.

    Raises:
        UserError: no GPU, an unknown case, or no tests/reference beside the package.
    """
    parser = argparse.ArgumentParser(prog="rltok bench", description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=2, help="of the CPU (default 2)")
    parser.add_argument("--only", nargs="+", default=[], metavar="CASE", help=", ".join(cpu.CASES))
    parser.add_argument(
        "--tiny", action="store_true", help="tiny sizes: does it all run? The figures mean nothing"
    )
    parser.add_argument("--out", type=Path, help="JSON (default results/bench/DEVICE.json)")
    arguments = parser.parse_args(argv)
    unknown = set(arguments.only) - set(cpu.CASES)
    if unknown:
        raise UserError(f"unknown case {sorted(unknown)[0]!r}; one of {', '.join(cpu.CASES)}")
    if arguments.device == "cuda" and not torch.cuda.is_available():
        raise UserError("no GPU here: torch sees no CUDA device, so nothing was measured")
    if arguments.device == "cuda" and arguments.only:
        raise UserError("--only names cases of --device cpu")
    torch.set_num_threads(arguments.threads)
    kernels.use(RuntimeConfig())
    machine = _machine(arguments.device, arguments.threads)
    if arguments.device == "cuda":
        from rltok_core.bench import gpu  # needs what only a GPU needs

        result = gpu.bench(gpu.TINY if arguments.tiny else gpu.FULL, say)
    else:
        result = _bench_cpu(cpu.TINY if arguments.tiny else cpu.FULL, arguments.only)
    out = arguments.out or Path("results/bench") / f"{arguments.device}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    write_json(out, {"machine": machine, "tiny": arguments.tiny, **result})
    say(f"written: {out}")
    return 0
