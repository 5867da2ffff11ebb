"""Attention as it is usually written: every score of a sequence, a mask, a softmax.

Shapes: B rows, S positions, H heads, d head size.
"""

import torch


def dense_attention(
    q_BSHd: torch.Tensor,
    k_BSHd: torch.Tensor,
    v_BSHd: torch.Tensor,
    softcap: float,
    window: int | None = None,
) -> torch.Tensor:
    """Causal attention with capped logits over the last `window` positions (None: all), BSHd.

    q is already scaled and, like k, already rotated.
    """
    index_S = torch.arange(q_BSHd.shape[1], device=q_BSHd.device)
    distance_SS = index_S[:, None] - index_S[None, :]
    seen_SS = distance_SS >= 0
    if window is not None:
        seen_SS &= distance_SS < window
    score_BHSS = torch.einsum("bqhd,bkhd->bhqk", q_BSHd, k_BSHd)
    score_BHSS = softcap * torch.tanh(score_BHSS / softcap)
    score_BHSS = score_BHSS.masked_fill(~seen_SS, float("-inf"))
    return torch.einsum("bhqk,bkhd->bqhd", torch.softmax(score_BHSS, -1), v_BSHd)
