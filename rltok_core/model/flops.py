"""Training FLOPs of a step, by the paper's convention and counted.

Paper (paper.md 2): 6 x (byte layers, heads, policy) x B x S + 6 x (mid layers) x B x longest token
sequence. All rows of the heads count; embedding and attention scores don't; padding does.

Counted: what the mathematics needs. 6 flops a weight (forward 2, backward 4) and valid position or
real token, the heads' 256 byte rows only, and attention 12 D a pair of query and key (q.k and
weight.v, 2 D each forward, twice that backward). A kernel may do more: masked scores.

An estimator that draws K sets of boundaries a row costs K times everything but the down layers and
the early head, in both counts.

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


def paper_flops(model: UNet, rows: int, positions: int, longest: int, samples: int = 1) -> int:
    """The paper's convention for `rows` rows padded to `positions`, at most `longest` tokens, with
    `samples` draws of the boundaries."""
    counts = model.parameter_counts()
    shared = down_weights(model) + model.early_head.weight.numel()
    heads = model.head.weight.numel() + model.early_head.weight.numel()
    drawn = counts["byte_layers"] + heads + counts["policy"] - shared
    bytewise = shared + samples * drawn
    return 6 * rows * (bytewise * positions + samples * counts["mid_layers"] * longest)


def down_weights(model: UNet) -> int:
    """Weights of the down layers, which are byte layers like the up layers."""
    config = model.config
    layers = config.n_down + config.n_up
    return model.parameter_counts()["byte_layers"] * config.n_down // layers


def window_pairs(length_B: torch.Tensor, window: int) -> int:
    """Pairs of a query and a key it sees: position i sees min(i + 1, window) of them."""
    length_B = length_B.long()
    full_B = (length_B - window).clamp(min=0)  # positions that see a whole window but the ramp's
    ramp_B = length_B - full_B
    return int((ramp_B * (ramp_B + 1) // 2 + full_B * window).sum())


def counted_flops(
    model: UNet, length_B: torch.Tensor, tokens_B: torch.Tensor, samples: int = 1
) -> int:
    """What rows of length_B positions with tokens_B tokens need; `samples` draws of the boundaries
    are as many blocks of the same rows."""
    config, counts = model.config, model.parameter_counts()
    positions, tokens = int(length_B.sum()), int(tokens_B.sum())
    shared = down_weights(model) + N_BYTES * config.d_model  # down layers, early head
    drawn = counts["byte_layers"] + counts["policy"] + 2 * N_BYTES * config.d_model - shared
    pairs = window_pairs(length_B, config.window)
    byte_pairs = pairs // samples * config.n_down + pairs * config.n_up
    token_pairs = int((tokens_B * (tokens_B + 1) // 2).sum()) * config.n_mid
    weights = shared * positions // samples + drawn * positions + counts["mid_layers"] * tokens
    return 6 * weights + 12 * config.d_model * (byte_pairs + token_pairs)


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
