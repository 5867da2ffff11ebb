"""Explicit randomness: uniform numbers that depend on a row's key alone.

A row's numbers are the same whatever batch, rank, padding or order it is computed in: that makes
resume exact, evaluation independent of batch size, and causality testable with the stream fixed.

Shapes: B rows of a batch, S positions.
"""

import hashlib
from collections.abc import Callable

import numpy as np
import torch


def stream_key(*parts: int | str) -> int:
    """A 64-bit key from a tuple such as (seed, "train", step, row); stable across machines."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


class RandomStream:
    """Uniform numbers in [0, 1) for each row of a batch.

    Args:
        keys_B: one 64-bit key a row (stream_key).
        device: where the numbers go.
        constant: if given, every number is this one; 0.5 turns sampling into thresholding,
            since a boundary is drawn as u < p.
    """

    def __init__(self, keys_B: list[int], device="cpu", constant: float | None = None):
        self.keys_B, self.device, self.constant = list(keys_B), device, constant
        self._drawn: dict[tuple[int, str], torch.Tensor] = {}
        self.asked: set[tuple[int, str]] = set()

    def uniform(self, length: int, channel: str = "boundary") -> torch.Tensor:
        """u_BS float32, (rows, length); the first n numbers of a row don't depend on length."""
        self.asked.add((length, channel))
        if self.constant is not None:
            return torch.full((len(self.keys_B), length), self.constant, device=self.device)
        if (length, channel) in self._drawn:
            return self._drawn[length, channel]
        return self._draw(length, channel).to(self.device)

    def ahead(self, asked: set[tuple[int, str]]) -> None:
        """Draw now what will be asked for as (length, channel): the numbers stay the same."""
        for length, channel in asked:
            self._drawn[length, channel] = self._draw(length, channel)

    def moved(self, move: Callable[[torch.Tensor], torch.Tensor], device) -> "RandomStream":
        """The same numbers on another device; `move` takes there what has been drawn."""
        stream = RandomStream(self.keys_B, device, self.constant)
        stream._drawn = {key: move(u_BS) for key, u_BS in self._drawn.items()}
        return stream

    def _draw(self, length: int, channel: str) -> torch.Tensor:
        u_BS = np.empty((len(self.keys_B), length), dtype=np.float32)
        for row, key in enumerate(self.keys_B):
            bits = np.random.Generator(np.random.Philox(key=stream_key(key, channel)))
            # 24 random bits fill a float32's mantissa: never rounds up to 1
            u_BS[row] = bits.integers(0, 1 << 24, size=length, dtype=np.uint32) * 2.0**-24
        return torch.from_numpy(u_BS)
