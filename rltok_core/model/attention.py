"""Attention with a logit soft cap: the one place that picks a kernel.

Soft capping, softmax(cap * tanh(s / cap)), rules out scaled_dot_product_attention, so both kinds
are explicit matmul + softmax, with the softmax in float32:

- local_attention: each byte sees the last `window` bytes, itself included (ledger 9). Queries are
  cut into blocks of at least `window`; a block sees itself and the block before: S x 2 block
  scores in place of S^2.
- token_attention: full causal attention over the selected tokens.

Padding is always on the right of a row (data/batch.py, boundaries/contract.py), so the causal
order already hides it from every valid position, and a padded query sees at least itself: no
padding mask is needed and nothing is divided by zero.

RoPE turns the pair of channels (2j, 2j + 1) of a head by position x theta^(-2j/d): a complex
product. (Hugging Face pairs j with j + d/2: the same network with the rows of the q and k
projections permuted.)

Shapes: B rows, S positions, T tokens, H heads, d head size, N blocks, Q queries of a block,
K keys of a block.
"""

from functools import lru_cache

import torch
import torch.nn.functional as F

from rltok_core.model.norm import widened


@lru_cache(maxsize=8)
def rope_table(length: int, d_head: int, theta: float, device: torch.device) -> torch.Tensor:
    """complex64 (length, d_head / 2): exp(i position theta^(-2j/d)), angles taken in float64."""
    frequency = theta ** (-torch.arange(0, d_head, 2, dtype=torch.float64, device=device) / d_head)
    angle = torch.arange(length, dtype=torch.float64, device=device)[:, None] * frequency
    return torch.polar(torch.ones_like(angle), angle).to(torch.complex64)


def rotate(x_BSHd: torch.Tensor, turn_BSd: torch.Tensor) -> torch.Tensor:
    """Apply RoPE in float32 (or float64); `turn_BSd` is the table at each position, complex."""
    pairs = torch.view_as_complex(widened(x_BSHd).unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turn_BSd.unsqueeze(-2)).flatten(-2)


def block_size(window: int) -> int:
    """Queries a block: at least the window, and enough for a matmul to be worth its call."""
    return max(window, 16)


@lru_cache(maxsize=16)
def _local_mask(block: int, window: int, blocks: int, device: torch.device) -> torch.Tensor:
    """bool (N, Q, K): True where a query must not look; keys are the block before, then its own."""
    query_Q1 = torch.arange(block, device=device)[:, None] + block
    key_1K = torch.arange(2 * block, device=device)[None, :]
    hidden_NQK = ((key_1K > query_Q1) | (key_1K <= query_Q1 - window)).repeat(blocks, 1, 1)
    hidden_NQK[0, :, :block] = True  # nothing lies before the first block
    return hidden_NQK


@lru_cache(maxsize=16)
def _causal_mask(length: int, device: torch.device) -> torch.Tensor:
    return torch.ones(length, length, dtype=torch.bool, device=device).triu(1)


def _softcap_softmax(score: torch.Tensor, hidden: torch.Tensor, softcap: float) -> torch.Tensor:
    score = softcap * torch.tanh(widened(score) / softcap)
    return torch.softmax(score.masked_fill(hidden, float("-inf")), -1)


def local_attention(
    q_BSHd: torch.Tensor, k_BSHd: torch.Tensor, v_BSHd: torch.Tensor, window: int, softcap: float
) -> torch.Tensor:
    """Sliding-window causal attention (paper.md 2); q is already scaled and turned.

    Returns:
        BSHd, the mean of v over the last `window` positions weighted by the soft-capped softmax.
    """
    length = q_BSHd.shape[1]
    block = block_size(window)
    blocks = -(-length // block)

    def cut(x_BSHd):
        x_BSHd = F.pad(x_BSHd, (0, 0, 0, 0, 0, blocks * block - length))
        return x_BSHd.unflatten(1, (blocks, block)).transpose(2, 3)

    def with_previous(x_BNHQd):
        return torch.cat([F.pad(x_BNHQd[:, :-1], (0,) * 6 + (1, 0)), x_BNHQd], dim=3)

    q_BNHQd = cut(q_BSHd)
    k_BNHKd, v_BNHKd = with_previous(cut(k_BSHd)), with_previous(cut(v_BSHd))
    score_BNHQK = q_BNHQd @ k_BNHKd.transpose(-1, -2)
    hidden_NQK = _local_mask(block, window, blocks, q_BSHd.device)
    weight_BNHQK = _softcap_softmax(score_BNHQK, hidden_NQK[:, None], softcap)
    out_BNHQd = weight_BNHQK.to(v_BSHd.dtype) @ v_BNHKd
    return out_BNHQd.transpose(2, 3).flatten(1, 2)[:, :length]


def token_attention(
    q_BTHd: torch.Tensor, k_BTHd: torch.Tensor, v_BTHd: torch.Tensor, softcap: float
) -> torch.Tensor:
    """Full causal attention over tokens (paper.md 2); q is already scaled and turned. BTHd."""
    q_BHTd, k_BHTd, v_BHTd = (x.transpose(1, 2) for x in (q_BTHd, k_BTHd, v_BTHd))
    hidden_TT = _causal_mask(q_BTHd.shape[1], q_BTHd.device)
    weight_BHTT = _softcap_softmax(q_BHTd @ k_BHTd.transpose(-1, -2), hidden_TT, softcap)
    return (weight_BHTT.to(v_BTHd.dtype) @ v_BHTd).transpose(1, 2)


def kernel_report() -> str:
    """What was picked, for a run's manifest."""
    return "local: blocks, matmul + softmax; tokens: dense causal, matmul + softmax"
