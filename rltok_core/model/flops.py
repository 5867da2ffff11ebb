"""Training FLOPs of a step on a batch, by the paper's convention and counted (model/costs.py).

Shapes: B rows, S positions, T tokens.
"""

from typing import NamedTuple

import torch

from rltok_core.data.batch import Batch
from rltok_core.model import costs
from rltok_core.model.unet import Prediction, UNet


class Flops(NamedTuple):
    """Floating-point operations, forward and backward."""

    paper: int
    counted: int


def _weights(model: UNet) -> costs.Weights:
    counts = model.parameter_counts()
    return costs.Weights(*(counts[name] for name in costs.Weights._fields))


def paper_flops(model: UNet, rows: int, positions: int, longest: int, samples: int = 1) -> int:
    """The paper's convention for `rows` rows padded to `positions`, at most `longest` tokens, with
    `samples` draws of the boundaries."""
    shape = (rows, positions, longest, samples)
    return costs.paper_flops(_weights(model), model.config, *shape).total


def window_pairs(length_B: torch.Tensor, window: int) -> int:
    """Pairs of a query and a key it sees, summed over rows."""
    return sum(costs.window_pairs(length, window) for length in length_B.tolist())


def counted_flops(
    model: UNet, length_B: torch.Tensor, tokens_B: torch.Tensor, samples: int = 1
) -> int:
    """What rows of length_B positions need; tokens_B holds a block of them for each of `samples`
    draws of the boundaries."""
    return costs.counted_flops(
        _weights(model),
        model.config,
        positions=int(length_B.sum()),
        byte_pairs=window_pairs(length_B, model.config.window),
        tokens=int(tokens_B.sum()),
        token_pairs=int((tokens_B * (tokens_B + 1) // 2).sum()),
        samples=samples,
    ).total


def row_tokens(prediction: Prediction) -> torch.Tensor:
    """int64 (B,): tokens of every row of every draw, on their device: nothing waits for them."""
    if prediction.tokens is None:
        return torch.zeros_like(prediction.batch.length_B)
    return prediction.tokens.valid_BT.sum(1)


def step_flops(model: UNet, batch: Batch, tokens_B: torch.Tensor) -> Flops:
    """Both counts for one training step on the rows of `batch`.

    Args:
        tokens_B: row_tokens(); a block of all rows for each draw of the boundaries.
    """
    rows, positions = batch.ids_BS.shape
    samples = len(tokens_B) // rows
    return Flops(
        paper_flops(model, rows, positions, int(tokens_B.max()), samples),
        counted_flops(model, batch.length_B, tokens_B, samples),
    )
