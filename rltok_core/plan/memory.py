"""Peak memory of a training step, by adding up what it keeps for its backward pass.

Weights, gradients and AdamW's two moments; in bf16 also the copies of the weights that autocast
makes; and for each position and token what every layer keeps. That list follows the kernels
(model/attention.py): loops on the CPU in float32, blocks or dense scores elsewhere on the CPU, and
on CUDA FlexAttention, which keeps no scores. tests/plan compares it with measured steps on the CPU;
nobody has measured it on a GPU yet.
"""

import math

from rltok_core.boundaries.sizes import Size
from rltok_core.config.schema import ModelConfig, TrainingConfig
from rltok_core.data.vocabulary import N_BYTES
from rltok_core.model.costs import LARGEST_LOOP_WINDOW, Weights, block_size


def weight_bytes(precision: str) -> int:
    """Of a stored weight."""
    return 2 if precision == "bf16_pure" else 4


def state_bytes(weights: int, precision: str) -> int:
    """A checkpoint's: weights and AdamW's two moments."""
    return 3 * weight_bytes(precision) * weights


def _vectors(width: int, d_mlp: int, element: int, norm: int, loops: bool) -> int:
    """Bytes a position of a layer keeps, attention aside: what the four norms and the first three
    projections read, gate and up, and what the last projection reads."""
    kept_gelu = 0 if loops else d_mlp * element
    return 4 * width * norm + 3 * width * element + 3 * d_mlp * element + kept_gelu


def _scores(keys: float, heads: int, element: int) -> float:
    """Capped scores and softmax in float32, and the weights again where the matmul is in bf16."""
    return heads * keys * (8 + (element if element < 4 else 0))


def activations(
    model: ModelConfig,
    training: TrainingConfig,
    size: Size,
    device: str,
    rows: int,
    tokens: float,
) -> float:
    """Bytes alive when the backward pass begins.

    Args:
        rows: of a micro-batch, all of training.seq_len positions.
        tokens: a row's, after the longest.
    """
    width, heads, seq = model.d_model, model.n_heads, training.seq_len
    element = 4 if training.precision == "float32" else 2
    stream = 2 if training.precision == "bf16_pure" else 4  # what layers hand on
    loops = device == "cpu" and element == 4
    # a norm keeps its input in float32; where PyTorch puts it together on the CPU, its output too
    norm = 8 if device == "cpu" and stream == 2 else 4
    byte = _vectors(width, width, element, norm, loops)
    mid = _vectors(width, 4 * width, element, norm, loops)
    if device == "cuda":
        byte += 7 * width * element + 4 * heads
        mid += 7 * width * element + 4 * heads
    else:
        if loops and model.window <= LARGEST_LOOP_WINDOW:
            byte += 5 * width * element + 8 * heads * model.window
        else:
            keys = 2 * block_size(model.window)
            byte += 5 * width * element + _scores(keys, heads, element)
        mid += 3 * width * element + _scores(tokens, heads, element)
    draws = size.samples
    kept = seq * byte * (model.n_down + draws * model.n_up)
    kept += draws * tokens * mid * model.n_mid
    # x for the early head, the last layer's output for the head, the estimator's own
    kept += seq * width * (1 + draws) * (stream if element == 4 else stream + element)
    kept += seq * draws * 4 * width * size.vectors
    # logits of both heads, and in float32 for the loss; their gradients begin the backward pass
    logits = N_BYTES * seq * (1 + draws)
    kept += logits * (4 if element == 4 else 4 + element)
    return rows * (kept + logits * 4)


def peak_memory(
    model: ModelConfig,
    training: TrainingConfig,
    weights: Weights,
    size: Size,
    device: str,
    rows: int,
    rate: float,
) -> int:
    """Bytes at the fullest moment of a step after the first: PyTorch's tensors alone, not the
    process around them.

    Args:
        rows: of a micro-batch.
        rate: the largest boundary rate that training asks for.
    """
    stored = weight_bytes(training.precision)
    tokens = 0
    if model.n_mid:  # of the longest row: two standard deviations of independent draws
        spread = 2 * math.sqrt(training.seq_len * rate * (1 - rate))
        tokens = min(rate * training.seq_len + spread, training.seq_len)
    alive = activations(model, training, size, device, rows, tokens)
    if training.precision == "bf16":
        alive += 2 * (weights.total - weights.policy)  # autocast's copies
    moments = 3 * stored * weights.total
    gradients = stored * weights.total
    # with several micro-batches the first one's gradients are there when the second runs
    before = gradients if rows < training.batch_size else 0
    return round(max(moments + before + alive, moments + gradients))
