"""Attention with a logit soft cap, and the functions that kernels.py picks from.

Soft capping, softmax(cap * tanh(s / cap)), rules out scaled_dot_product_attention and
torch.nn.attention.varlen, so everything is explicit, with the softmax in float32:

- local_attention: each byte sees the last `window` bytes, itself included (ledger 9). Queries are
  cut into blocks of at least `window`; a block sees itself and the block before: S x 2 block
  scores in place of S^2. On the CPU in float32 a small window goes through compiled loops instead
  (cpu_kernels.py), which compute no masked score at all.
- token_attention: full causal attention over the selected tokens, matmul + softmax.
- masked_attention (flex.py): FlexAttention under a block mask, for both kinds of layer on CUDA.

Padding is always on the right of a row (data/batch.py, boundaries/contract.py), so the causal
order already hides it from every valid position, and a padded query sees at least itself: no
padding mask is needed and nothing is divided by zero.

RoPE turns the pair of channels (2j, 2j + 1) of a head by position x theta^(-2j/d): a complex
product. (Hugging Face pairs j with j + d/2: the same network with the rows of the q and k
projections permuted.)

Shapes: B rows, S positions, T tokens, H heads, d head size, D = H d, N blocks, Q queries of a
block, K keys of a block; qkv_BSX has X = 3 D: every head's q, then k, then v.
"""

from functools import lru_cache
from typing import Protocol

import torch
import torch.nn.functional as F

from rltok_core.model import kernels
from rltok_core.model.costs import block_size
from rltok_core.model.functions import CompiledLocalAttention, CompiledTokenAttention
from rltok_core.model.norm import widened


@lru_cache(maxsize=8)
@torch.inference_mode(False)  # kept for later, maybe for a backward pass
def rope_table(
    length: int, d_head: int, theta: float, device: torch.device, rounded: bool = False
) -> torch.Tensor:
    """float32 (length, d): cosines, then sines, of position x theta^(-2j/d), j < d / 2.

    Positions are exact integers and angles float64; `rounded`: positions have gone through bf16,
    which merges neighbours from 256 on (ledger 3).
    """
    frequency = theta ** (-torch.arange(0, d_head, 2, dtype=torch.float64, device=device) / d_head)
    position = torch.arange(length, dtype=torch.float64, device=device)
    if rounded:
        position = position.bfloat16().double()
    angle = position[:, None] * frequency
    return torch.cat([angle.cos(), angle.sin()], 1).float()


def rotate(x_BSHd: torch.Tensor, table_BSd: torch.Tensor) -> torch.Tensor:
    """Apply RoPE in float32 at least; table_BSd holds rope_table's row of each position."""
    if torch.compiler.is_compiling():  # which has no complex kernels
        first, second = widened(x_BSHd).unflatten(-1, (-1, 2)).unbind(-1)
        cos, sin = (half.unsqueeze(-2) for half in table_BSd.chunk(2, dim=-1))
        turned = (first * cos - second * sin, first * sin + second * cos)
        return torch.stack(turned, -1).flatten(-2)
    pairs = torch.view_as_complex(widened(x_BSHd).unflatten(-1, (-1, 2)))
    turn = torch.complex(*table_BSd.chunk(2, dim=-1)).unsqueeze(-2)
    return torch.view_as_real(pairs * turn).flatten(-2)


def split_turned(qkv_BSX: torch.Tensor, table_BSd: torch.Tensor, heads: int) -> tuple:
    """q (turned and scaled by d^-1/2), k (turned) and v, BSHd each."""
    qkv_BSHd = qkv_BSX.unflatten(-1, (3 * heads, -1))
    v_BSHd = qkv_BSHd[:, :, 2 * heads :]
    turned_BSHd = rotate(qkv_BSHd[:, :, : 2 * heads], table_BSd).to(v_BSHd.dtype)
    q_BSHd, k_BSHd = turned_BSHd.chunk(2, dim=2)
    return q_BSHd * q_BSHd.shape[-1] ** -0.5, k_BSHd, v_BSHd


@lru_cache(maxsize=16)
@torch.inference_mode(False)  # kept for later, maybe for a backward pass
def _local_mask(block: int, window: int, blocks: int, device: torch.device) -> torch.Tensor:
    """bool (N, Q, K): True where a query must not look; keys are the block before, then its own."""
    query_Q1 = torch.arange(block, device=device)[:, None] + block
    key_1K = torch.arange(2 * block, device=device)[None, :]
    hidden_NQK = ((key_1K > query_Q1) | (key_1K <= query_Q1 - window)).repeat(blocks, 1, 1)
    hidden_NQK[0, :, :block] = True  # nothing lies before the first block
    return hidden_NQK


@lru_cache(maxsize=16)
@torch.inference_mode(False)  # kept for later, maybe for a backward pass
def _causal_mask(length: int, device: torch.device) -> torch.Tensor:
    return torch.ones(length, length, dtype=torch.bool, device=device).triu(1)


def _pick(kind: kernels.Kind, qkv: torch.Tensor, heads: int, softcap: float, window=0) -> str:
    d_head = qkv.shape[-1] // (3 * heads)
    case = kernels.Case(qkv.device.type, qkv.dtype, window, softcap, d_head)
    return kernels.pick(kind, case)


def _softcap_softmax(score: torch.Tensor, hidden: torch.Tensor, softcap: float) -> torch.Tensor:
    score = softcap * torch.tanh(widened(score) / softcap)
    return torch.softmax(score.masked_fill(hidden, float("-inf")), -1)


def local_attention(
    qkv_BSX: torch.Tensor, table_Sd: torch.Tensor, heads: int, window: int, softcap: float
) -> torch.Tensor:
    """Sliding-window causal attention (paper.md 2) with RoPE and scores scaled by d^-1/2.

    Returns:
        BSD, the mean of v over the last `window` positions, weighted by the soft-capped softmax.
    """
    length = qkv_BSX.shape[1]
    kernel = _pick("byte_attention", qkv_BSX, heads, softcap, window)
    if kernel == "loops":
        return CompiledLocalAttention.apply(qkv_BSX, table_Sd, heads, window, softcap)
    if kernel == "flex":
        from rltok_core.model.flex import masked_attention, window_mask  # slow to import

        mask = window_mask(length, window, qkv_BSX.device)
        return masked_attention(qkv_BSX, table_Sd, heads, softcap, mask)
    block = block_size(window)
    blocks = -(-length // block)

    def cut(x_BSHd):
        x_BSHd = F.pad(x_BSHd, (0, 0, 0, 0, 0, blocks * block - length))
        return x_BSHd.unflatten(1, (blocks, block)).transpose(2, 3)

    def with_previous(x_BNHQd):
        return torch.cat([F.pad(x_BNHQd[:, :-1], (0,) * 6 + (1, 0)), x_BNHQd], dim=3)

    q_BNHQd, k_BNHQd, v_BNHQd = map(cut, split_turned(qkv_BSX, table_Sd, heads))
    k_BNHKd, v_BNHKd = with_previous(k_BNHQd), with_previous(v_BNHQd)
    score_BNHQK = q_BNHQd @ k_BNHKd.transpose(-1, -2)
    hidden_NQK = _local_mask(block, window, blocks, qkv_BSX.device)
    weight_BNHQK = _softcap_softmax(score_BNHQK, hidden_NQK[:, None], softcap)
    out_BNHQd = weight_BNHQK.to(v_BNHKd.dtype) @ v_BNHKd
    return out_BNHQd.transpose(2, 3).flatten(1, 2)[:, :length].flatten(-2)


def token_attention(
    qkv_BTX: torch.Tensor, table_BTd: torch.Tensor, heads: int, softcap: float
) -> torch.Tensor:
    """Full causal attention over tokens (paper.md 2), RoPE at each token's byte position; BTD.

    Rows are padded here; packed ones come with their mask (masked_attention).
    """
    if _pick("token_attention", qkv_BTX, heads, softcap) == "loops":
        return CompiledTokenAttention.apply(qkv_BTX, table_BTd, heads, softcap)
    q_BHTd, k_BHTd, v_BHTd = (x.transpose(1, 2) for x in split_turned(qkv_BTX, table_BTd, heads))
    hidden_TT = _causal_mask(qkv_BTX.shape[1], qkv_BTX.device)
    weight_BHTT = _softcap_softmax(q_BHTd @ k_BHTd.transpose(-1, -2), hidden_TT, softcap)
    return (weight_BHTT.to(v_BHTd.dtype) @ v_BHTd).transpose(1, 2).flatten(-2)


class Past(Protocol):
    """Keys and values that a layer keeps of a row's earlier positions (incremental.py)."""

    def extend(self, k_BHd: torch.Tensor, v_BHd: torch.Tensor) -> tuple:
        """Add one position; (k_BKHd, v_BKHd, hidden_BK) to look at, hidden None for none."""


def past_attention(
    qkv_B1X: torch.Tensor, table_1d: torch.Tensor, past: Past, heads: int, softcap: float
) -> torch.Tensor:
    """Attention of one position, itself and what `past` holds; B1D."""
    q_B1Hd, k_B1Hd, v_B1Hd = split_turned(qkv_B1X, table_1d, heads)
    k_BKHd, v_BKHd, hidden_BK = past.extend(k_B1Hd[:, 0], v_B1Hd[:, 0])
    score_BH1K = q_B1Hd.transpose(1, 2) @ k_BKHd.permute(0, 2, 3, 1)
    if hidden_BK is None:
        hidden_BK = torch.zeros(k_BKHd.shape[:2], dtype=torch.bool, device=k_BKHd.device)
    weight_BH1K = _softcap_softmax(score_BH1K, hidden_BK[:, None, None], softcap)
    out_BH1d = weight_BH1K.to(v_BKHd.dtype) @ v_BKHd.transpose(1, 2)
    return out_BH1d.transpose(1, 2).flatten(-2)
