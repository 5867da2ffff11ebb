"""Devices to plan for: their peak, as their makers publish it, and their memory."""

from typing import NamedTuple

from rltok_core.config.strict import nearest
from rltok_core.errors import UserError


class Device(NamedTuple):
    """peak: FLOP/s, dense bf16 matmul (never the figure with sparsity); memory: bytes."""

    title: str
    peak: float
    memory: int | None


DEVICES = {
    "h100": Device("H100 SXM 80 GB", 989.4e12, 80 * 10**9),
    "h100-pcie": Device("H100 PCIe 80 GB", 756e12, 80 * 10**9),
    "h200": Device("H200 SXM 141 GB", 989.4e12, 141 * 10**9),
    "b200": Device("B200 SXM 180 GB", 2250e12, 180 * 10**9),
    "a100": Device("A100 SXM 80 GB", 312e12, 80 * 10**9),
    "l40s": Device("L40S 48 GB", 362e12, 48 * 10**9),
    "rtx4090": Device("RTX 4090 24 GB", 165.2e12, 24 * 10**9),
    # measured, not published: a float32 matmul on one core of a virtual machine
    "cpu": Device("one CPU core", 85e9, None),
}


def device(name: str) -> Device:
    """Raises UserError for an unknown name, with the nearest known one."""
    if name not in DEVICES:
        raise UserError(f"--device {name!r}: unknown{nearest(name, list(DEVICES))}")
    return DEVICES[name]
