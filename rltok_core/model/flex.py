"""FlexAttention with a soft cap, and its block masks: which blocks of keys a block of queries sees.

Both kinds of mask are ranges, so they are written down, never searched for: torch's own
create_block_mask looks at every pair of positions (10^10 of them for the tokens of 128 rows).

- a byte layer: the last `window` positions; one mask for each length, kept.
- token layers over packed rows (packing.py): earlier tokens of the same row; one mask a step, for
  all layers. Blocks wholly inside a row and before the query's own need no look at single tokens.

Imported only where it is picked (kernels.py): it takes seconds, for torch.compile comes with it.

Shapes: N blocks of BLOCK positions, L positions, B rows, S positions, H heads, d head size,
D = H d; qkv_BSX has X = 3 D.
"""

from functools import lru_cache

import torch
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from rltok_core.model.attention import split_turned
from rltok_core.model.packing import BLOCK


def _listed(chosen_NN: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(how many, which first) of the True columns of each row, as BlockMask wants them."""
    order_NN = chosen_NN.to(torch.int8).argsort(dim=1, descending=True, stable=True)
    return chosen_NN.sum(1).int()[None, None], order_NN.int()[None, None]


def _block_mask(seen_NN: torch.Tensor, whole_NN: torch.Tensor, mask_mod, length: int) -> BlockMask:
    """Blocks seen in part go through mask_mod; those seen whole don't."""
    return BlockMask.from_kv_blocks(
        *_listed(seen_NN & ~whole_NN),
        *_listed(whole_NN),
        BLOCK_SIZE=BLOCK,
        mask_mod=mask_mod,
        seq_lengths=(length, length),
    )


@lru_cache(maxsize=8)
@torch.inference_mode(False)  # kept for later, maybe for a backward pass
def window_mask(length: int, window: int, device: torch.device) -> BlockMask:
    """Position i sees i - window + 1 .. i."""

    def sees(b, h, q_index, kv_index):
        return (q_index >= kv_index) & (q_index - kv_index < window)

    index_N = torch.arange(-(-length // BLOCK), device=device)
    back_NN = index_N[:, None] - index_N[None, :]
    # the nearest two positions of blocks n apart are (n - 1) BLOCK + 1 apart, the farthest
    # (n + 1) BLOCK - 1
    seen_NN = (back_NN >= 0) & ((back_NN - 1) * BLOCK + 1 < window)
    whole_NN = (back_NN > 0) & ((back_NN + 1) * BLOCK - 1 < window)
    return _block_mask(seen_NN, whole_NN, sees, length)


def row_mask(row_L: torch.Tensor) -> BlockMask:
    """Position i sees the positions of its own row up to i; row_L is each one's row, rising.

    Raises:
        ValueError: a length that isn't a multiple of BLOCK.
    """
    length = len(row_L)
    if length % BLOCK:
        raise ValueError(f"{length} positions are no multiple of {BLOCK}")

    def sees(b, h, q_index, kv_index):
        return (row_L[q_index] == row_L[kv_index]) & (q_index >= kv_index)

    first_N, last_N = row_L[::BLOCK], row_L[BLOCK - 1 :: BLOCK]
    index_N = torch.arange(len(first_N), device=row_L.device)
    earlier_NN = index_N[:, None] > index_N[None, :]
    # rows rise: blocks share a row if the key block's last one reaches the query block's first
    seen_NN = (earlier_NN & (last_N[None, :] >= first_N[:, None])) | torch.eye(
        len(index_N), dtype=torch.bool, device=row_L.device
    )
    whole_NN = earlier_NN & (first_N[None, :] == last_N[:, None])
    return _block_mask(seen_NN, whole_NN, sees, length)


@lru_cache(maxsize=4)
def _score_mod(softcap: float):
    """The same function for every layer: a new one would be compiled anew."""

    def capped(score, b, h, q_index, kv_index):
        return softcap * torch.tanh(score / softcap)

    return capped


_fused_flex_attention = torch.compile(flex_attention)


def masked_attention(
    qkv_BSX: torch.Tensor, table_BSd: torch.Tensor, heads: int, softcap: float, mask: BlockMask
) -> torch.Tensor:
    """Attention over what `mask` (window_mask, row_mask) lets a position see, by FlexAttention.

    Args:
        table_BSd: rope_table's row of each position; Sd for byte layers, in order.

    Returns:
        BSD. On the CPU FlexAttention computes every score and has no backward pass.
    """
    q_BHSd, k_BHSd, v_BHSd = (x.transpose(1, 2) for x in split_turned(qkv_BSX, table_BSd, heads))
    # a layer inside torch.compile has it compiled already; uncompiled it is a dense check
    inside = torch.compiler.is_compiling() or qkv_BSX.device.type != "cuda"
    attend = flex_attention if inside else _fused_flex_attention
    out_BHSd = attend(
        q_BHSd, k_BHSd, v_BHSd, score_mod=_score_mod(softcap), block_mask=mask, scale=1.0
    )
    return out_BHSd.transpose(1, 2).flatten(-2)
