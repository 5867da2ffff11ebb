"""Training FLOPs of a step, by the paper's convention and counted.

Paper (paper.md 2): 6 x (byte layers, heads, policy) x B x S + 6 x (mid layers) x B x longest token
sequence. All rows of the heads count; embedding and attention scores don't; padding does.

Counted: what the mathematics needs. 6 flops a weight (forward 2, backward 4) and valid position or
real token, the heads' 256 byte rows only, and attention 12 D a pair of query and key (q.k and
weight.v, 2 D each forward, twice that backward). A kernel may do more: masked scores.

Shapes: B rows, S positions, T tokens.
"""

from typing import NamedTuple

import torch

from rltok_core.data.batch import Batch
from rltok_core.data.vocabulary import N_BYTES
from rltok_core.model.unet import Prediction, UNet


class Flops(NamedTuple):
    """Floating-point operations, forward and backward."""

    paper: int
    counted: int


def paper_flops(model: UNet, rows: int, positions: int, longest: int) -> int:
    """The paper's convention for `rows` rows padded to `positions`, at most `longest` tokens."""
    counts = model.parameter_counts()
    heads = model.head.weight.numel() + model.early_head.weight.numel()
    bytewise = counts["byte_layers"] + heads + counts["policy"]
    return 6 * rows * (bytewise * positions + counts["mid_layers"] * longest)


def window_pairs(length_B: torch.Tensor, window: int) -> int:
    """Pairs of a query and a key it sees: position i sees min(i + 1, window) of them."""
    length_B = length_B.long()
    full_B = (length_B - window).clamp(min=0)  # positions that see a whole window but the ramp's
    ramp_B = length_B - full_B
    return int((ramp_B * (ramp_B + 1) // 2 + full_B * window).sum())


def counted_flops(model: UNet, length_B: torch.Tensor, tokens_B: torch.Tensor) -> int:
    """What rows of length_B positions with tokens_B tokens need."""
    config, counts = model.config, model.parameter_counts()
    positions, tokens = int(length_B.sum()), int(tokens_B.sum())
    bytewise = counts["byte_layers"] + counts["policy"] + 2 * N_BYTES * config.d_model
    byte_pairs = window_pairs(length_B, config.window) * (config.n_down + config.n_up)
    token_pairs = int((tokens_B * (tokens_B + 1) // 2).sum()) * config.n_mid
    return 6 * (bytewise * positions + counts["mid_layers"] * tokens) + 12 * config.d_model * (
        byte_pairs + token_pairs
    )


def step_flops(model: UNet, batch: Batch, prediction: Prediction) -> Flops:
    """Both counts for one training step on `batch`."""
    if prediction.tokens is None:
        tokens_B = torch.zeros_like(batch.length_B)
    else:
        tokens_B = prediction.tokens.valid_BT.sum(1)
    rows, positions = batch.ids_BS.shape
    return Flops(
        paper_flops(model, rows, positions, int(tokens_B.max())),
        counted_flops(model, batch.length_B, tokens_B),
    )
