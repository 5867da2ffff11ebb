"""Where a number comes from: code, packages, machine and data (promise 9)."""

import importlib.metadata
import os
import platform
import socket
import subprocess
from pathlib import Path

import torch

import rltok_core
from rltok_core.config.schema import RunConfig
from rltok_core.model.kernels import kernel_report

PACKAGES = ("torch", "numpy", "numba", "pydantic", "PyYAML")


def code_version(package: Path = Path(rltok_core.__file__).parent) -> dict:
    """{"version", "commit", "dirty"}: commit and dirty are None outside a checkout of this project.

    `dirty` looks at the library alone: a new figure doesn't change what the code computes.
    """

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(package), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    version = {"version": rltok_core.__version__, "commit": None, "dirty": None}
    try:
        # an installed copy inside somebody else's repository has another top level
        if Path(git("rev-parse", "--show-toplevel")) == package.resolve().parent:
            version["commit"] = git("rev-parse", "HEAD")
            version["dirty"] = bool(git("status", "--porcelain", "--", "."))
    except (OSError, subprocess.CalledProcessError):
        return version  # no git, or no checkout: the package version alone
    return version


def package_versions() -> dict[str, str | None]:
    """Installed versions; None for one that isn't installed."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    return versions


def device_name(device: str) -> str:
    """The GPU's name, or the processor's."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    cpuinfo = Path("/proc/cpuinfo")
    for line in cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def picked_kernels(run: RunConfig) -> dict[str, str]:
    """What computes the run's training steps, and why (model/kernels.py)."""
    model = run.model
    dtype = torch.float32 if run.training.precision == "float32" else torch.bfloat16
    d_head = model.d_model // model.n_heads
    given = (model.window, model.attention_softcap, d_head)
    return kernel_report(run.runtime.device, dtype, *given)


def provenance(run: RunConfig, data_hash: str) -> dict:
    """What manifest.json of a run folder holds."""
    return {
        "run_id": run.id,
        "run_hash": run.hash,
        "data_hash": data_hash,
        "code": code_version(),
        "packages": package_versions(),
        "python": platform.python_version(),
        "device": run.runtime.device,
        "device_name": device_name(run.runtime.device),
        "threads": run.runtime.threads,
        "kernels": picked_kernels(run),
        "host": socket.gethostname(),
        "slurm_job": os.environ.get("SLURM_JOB_ID"),
    }
