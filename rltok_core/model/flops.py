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
    """What rows of length_B positions with tokens_B tokens need; `samples` draws of the boundaries
    are as many blocks of the same rows."""
    return costs.counted_flops(
        _weights(model),
        model.config,
        positions=int(length_B.sum()) // samples,
        byte_pairs=window_pairs(length_B, model.config.window) // samples,
        tokens=int(tokens_B.sum()),
        token_pairs=int((tokens_B * (tokens_B + 1) // 2).sum()),
        samples=samples,
    ).total


def step_flops(model: UNet, batch: Batch, prediction: Prediction) -> Flops:
    """Both counts for one training step on `batch`, the rows of all draws (prediction.batch)."""
    samples = batch.samples
    if prediction.tokens is None:
        tokens_B = torch.zeros_like(batch.length_B)
    else:
        tokens_B = prediction.tokens.valid_BT.sum(1)
    rows, positions = batch.ids_BS.shape
    return Flops(
        paper_flops(model, rows // samples, positions, int(tokens_B.max()), samples),
        counted_flops(model, batch.length_B, tokens_B, samples),
    )
