"""Sequential boundary sampling as it is usually written: a Python loop over positions.

Shapes: B rows, S positions, w policy outputs (the last is the bias term).
"""

import math

import torch


def sample(
    v_BSw: torch.Tensor, u_BS: torch.Tensor, prior: float, cap: float, forced: torch.Tensor
) -> torch.Tensor:
    """a_BS, position by position for all rows at once; rows of full length."""
    length, width = v_BSw.shape[1:]
    # a_i is column i + width - 1: what lies before the row counts as no boundary
    a_BS = v_BSw.new_zeros(len(v_BSw), length + width - 1)
    for i in range(length):
        history_Bk = a_BS[:, i : i + width - 1].flip(1)  # a_{i-1}, a_{i-2}, ...
        logit_B = (v_BSw[:, i, :-1] * history_Bk).sum(-1) + v_BSw[:, i, -1] + prior
        probability_B = torch.sigmoid(cap * torch.tanh(logit_B / cap))
        a_BS[:, i + width - 1] = (u_BS[:, i] < probability_B) | forced[:, i]
    return a_BS[:, width - 1 :].bool()


def sample_row(
    v_Sw: list[list[float]], u_S: list[float], prior: float, cap: float, forced: list[bool]
) -> list[bool]:
    """One row in plain Python floats (float64), without any array: a second opinion."""
    a: list[bool] = []
    for i, v in enumerate(v_Sw):
        logit = v[-1] + prior
        for k in range(1, min(len(v), i + 1)):
            logit += v[k - 1] * a[i - k]
        if cap > 0:
            logit = cap * math.tanh(logit / cap)
        a.append(forced[i] or u_S[i] < 1 / (1 + math.exp(-logit)))
    return a
