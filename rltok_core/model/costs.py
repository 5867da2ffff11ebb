"""Weights and training FLOPs of a network by arithmetic alone: no torch, nothing is built.

What a run will cost (plan/, the workflow) and what a step has cost (model/flops.py) come from here.

Paper (paper.md 2): 6 x (byte layers, heads, policy) x B x S + 6 x (mid layers) x B x longest token
sequence. All rows of the heads count; embedding and attention scores don't; padding does.

Counted: what the mathematics needs. 6 flops a weight (forward 2, backward 4) and valid position or
real token, the heads' 256 byte rows only, and attention 12 D a pair of query and key (q.k and
weight.v, 2 D each forward, twice that backward). A kernel may do more: masked scores.

An estimator that draws K sets of boundaries a row costs K times everything but the down layers and
the early head, in both counts.
"""

from typing import NamedTuple

from rltok_core.config.schema import ModelConfig
from rltok_core.data.vocabulary import N_BYTES, VOCABULARY

# byte attention on the CPU: beyond this window blocks win, since the loops take a key at a time
LARGEST_LOOP_WINDOW = 16


def block_size(window: int) -> int:
    """Queries a block: at least the window, and enough for a matmul to be worth its call."""
    return max(window, 16)


class Weights(NamedTuple):
    """Numbers of weights by group."""

    byte_layers: int
    mid_layers: int
    embedding_and_heads: int
    policy: int

    @property
    def total(self) -> int:
        return sum(self)


class Flops(NamedTuple):
    """Floating-point operations, forward and backward: byte level (heads and policy with it) and
    token level apart."""

    byte: int
    mid: int

    @property
    def total(self) -> int:
        return self.byte + self.mid


def network_weights(model: ModelConfig, policy: int) -> Weights:
    """The network's weights, norms included; policy: the estimator's own."""
    width = model.d_model
    return Weights(
        (model.n_down + model.n_up) * (7 * width**2 + 4 * width),
        model.n_mid * (16 * width**2 + 4 * width),
        3 * VOCABULARY * width,
        policy,
    )


def _shared(weights: Weights, model: ModelConfig, classes: int) -> int:
    """What all draws of a row's boundaries share: down layers and early head."""
    down = weights.byte_layers * model.n_down // (model.n_down + model.n_up)
    return down + classes * model.d_model


def paper_flops(
    weights: Weights,
    model: ModelConfig,
    rows: int,
    positions: float,
    longest: float,
    samples: int = 1,
) -> Flops:
    """The paper's convention for `rows` rows padded to `positions`, at most `longest` tokens, with
    `samples` draws of the boundaries."""
    bytewise = weights.byte_layers + weights.policy + 2 * VOCABULARY * model.d_model
    shared = _shared(weights, model, VOCABULARY)
    return Flops(
        6 * rows * (shared + samples * (bytewise - shared)) * positions,
        6 * rows * samples * weights.mid_layers * longest,
    )


def counted_flops(
    weights: Weights,
    model: ModelConfig,
    positions: float,
    byte_pairs: float,
    tokens: float,
    token_pairs: float,
    samples: int = 1,
) -> Flops:
    """What valid bytes and real tokens need.

    Args:
        positions, byte_pairs: of one draw; pairs of a query and a key that it sees, in one layer.
        tokens, token_pairs: of all draws.
    """
    bytewise = weights.byte_layers + weights.policy + 2 * N_BYTES * model.d_model
    shared = _shared(weights, model, N_BYTES)
    pair = 12 * model.d_model
    return Flops(
        6 * (shared + samples * (bytewise - shared)) * positions
        + pair * byte_pairs * (model.n_down + samples * model.n_up),
        6 * weights.mid_layers * tokens + pair * token_pairs * model.n_mid,
    )


def window_pairs(length: int, window: int) -> int:
    """Pairs in a row of `length`: position i sees min(i + 1, window) bytes."""
    full = max(length - window, 0)  # positions that see a whole window, the ramp's last aside
    ramp = length - full
    return ramp * (ramp + 1) // 2 + full * window
