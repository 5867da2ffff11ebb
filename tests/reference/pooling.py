"""Bytes to tokens and back as it is usually written: one-hot matrices and einsum.

Shapes: B rows, S positions, T tokens of the longest row, D width.
"""

import torch


def select(x_BSD: torch.Tensor, boundary_BS: torch.Tensor) -> torch.Tensor:
    """SELECT (paper.md 2): the byte vectors at boundaries, zero after a row's last token, BTD."""
    rank_BS = boundary_BS.cumsum(1) - 1
    tokens_T = torch.arange(int(boundary_BS.sum(1).max()), device=x_BSD.device)
    chosen_BTS = (rank_BS[:, None, :] == tokens_T[None, :, None]) & boundary_BS[:, None, :]
    return torch.einsum("bts,bsd->btd", chosen_BTS.to(x_BSD.dtype), x_BSD)


def distribute(y_BTD: torch.Tensor, boundary_BS: torch.Tensor) -> torch.Tensor:
    """DISTRIBUTE (paper.md 2): each byte receives the latest token at or before it, BSD."""
    rank_BS = boundary_BS.cumsum(1) - 1
    tokens_T = torch.arange(y_BTD.shape[1], device=y_BTD.device)
    receives_BST = rank_BS[:, :, None] == tokens_T
    return torch.einsum("bst,btd->bsd", receives_BST.to(y_BTD.dtype), y_BTD)


def mean_pool(x_BSD: torch.Tensor, boundary_BS: torch.Tensor) -> torch.Tensor:
    """The mean of each segment; a boundary is the last byte of its segment, BTD."""
    segment_BS = boundary_BS.cumsum(1) - boundary_BS.long()
    tokens_T = torch.arange(int(boundary_BS.sum(1).max()), device=x_BSD.device)
    member_BTS = (segment_BS[:, None, :] == tokens_T[None, :, None]).to(x_BSD.dtype)
    total_BTD = torch.einsum("bts,bsd->btd", member_BTS, x_BSD)
    return total_BTD / member_BTS.sum(-1).clamp(min=1)[..., None]
