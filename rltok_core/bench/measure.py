"""Timing two ways of the same work in one run, and what is kept of it."""

import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

Work = Callable[[], Any]


def timed(work: Work, device: str) -> float:
    """Seconds of one call, until the device has done it."""
    if device == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def repeated(work: Work, repeats: int, warm_up: int, device: str) -> list[float]:
    """Seconds of each of `repeats` calls, after `warm_up` that don't count."""
    for _ in range(warm_up):
        work()
    return [timed(work, device) for _ in range(repeats)]


@dataclasses.dataclass
class Comparison:
    """Ours against a reference, taken in turns.

    Attributes:
        name, setting: what was done, at which size.
        ours, reference: what each is called.
        seconds, reference_seconds: of each repeat, in the order they were taken.
        goal: the ratio reference / ours asked for; None: none is.
    """

    name: str
    setting: str
    ours: str
    reference: str
    seconds: list[float]
    reference_seconds: list[float]
    goal: float | None = None

    @property
    def ratio(self) -> float:
        """Median reference seconds over median seconds of ours: how many times as fast."""
        return statistics.median(self.reference_seconds) / statistics.median(self.seconds)

    def record(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
        goal = {} if self.goal is None else {"goal": self.goal, "met": self.ratio >= self.goal}
        return {
            **dataclasses.asdict(self),
            "median_seconds": statistics.median(self.seconds),
            "median_reference_seconds": statistics.median(self.reference_seconds),
            "ratio": self.ratio,
            **goal,
        }


def in_turns(
    ours: Work, reference: Work, repeats: int, device: str, warm_up: tuple[int, int] = (1, 1)
) -> tuple[list[float], list[float]]:
    """Seconds of both, one after the other, so that a busy machine slows both.

    warm_up: calls of each that don't count.
    """
    for work, count in zip((ours, reference), warm_up, strict=True):
        for _ in range(count):
            work()
    pairs = [(timed(ours, device), timed(reference, device)) for _ in range(repeats)]
    first, second = zip(*pairs, strict=True)
    return list(first), list(second)


def forward_and_backward(function: Callable, inputs: list[torch.Tensor]) -> Work:
    """Call it, and send a fixed gradient back through what it returns."""

    def work():
        for x in inputs:
            x.grad = None
        out = function(*inputs)
        out.backward(torch.ones_like(out))
        return out

    return work
