"""Explicit randomness: uniform numbers that depend on a row's key alone.

A row's numbers are the same whatever batch, rank, padding or order it is computed in: that makes
resume exact, evaluation independent of batch size, and causality testable with the stream fixed.

Shapes: B rows of a batch, S positions.
"""

import hashlib

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
        samples: draws of each row, one block of all rows after another; the first are those of a
            stream with samples = 1.
        antithetic: every second draw's numbers are the one before's, mirrored.
    """

    def __init__(
        self,
        keys_B: list[int],
        device="cpu",
        constant: float | None = None,
        samples: int = 1,
        antithetic: bool = False,
    ):
        self.keys_B, self.device, self.constant = list(keys_B), device, constant
        self.samples, self.antithetic = samples, antithetic

    def repeated(self, samples: int, antithetic: bool) -> "RandomStream":
        """The stream of `samples` draws of these rows."""
        return RandomStream(self.keys_B, self.device, self.constant, samples, antithetic)

    def on(self, device) -> "RandomStream":
        """The same numbers on another device."""
        return RandomStream(self.keys_B, device, self.constant, self.samples, self.antithetic)

    def uniform(self, length: int, channel: str = "boundary") -> torch.Tensor:
        """u_BS float32, (samples x rows, length); the first n numbers of a row don't depend on
        length."""
        rows = self.samples * len(self.keys_B)
        if self.constant is not None:
            return torch.full((rows, length), self.constant, device=self.device)
        u_BS = np.empty((rows, length), dtype=np.float32)
        blocks = np.split(u_BS, self.samples)
        for sample, block_BS in enumerate(blocks):
            if self.antithetic and sample % 2:
                block_BS[:] = mirrored(blocks[sample - 1])
            else:
                self._fill(block_BS, (channel,) if sample == 0 else (channel, sample))
        return moved(torch.from_numpy(u_BS), self.device)

    def _fill(self, u_BS: np.ndarray, parts: tuple) -> None:
        for row, key in enumerate(self.keys_B):
            bits = np.random.Generator(np.random.Philox(key=stream_key(key, *parts)))
            # 24 random bits fill a float32's mantissa: never rounds up to 1
            u_BS[row] = bits.integers(0, 1 << 24, size=u_BS.shape[1], dtype=np.uint32) * 2.0**-24


def moved(tensor: torch.Tensor, device) -> torch.Tensor:
    """On `device`; to a GPU from page-locked memory, so that the host doesn't wait for the copy."""
    if torch.device(device).type == "cuda" and not tensor.is_pinned():
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def mirrored(u_BS):
    """1 - u on the stream's own grid of multiples of 2^-24, so that its law is that of u."""
    return (1 - 2.0**-24) - u_BS
