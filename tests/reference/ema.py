"""Exponential moving average as it is usually written: a Python loop over tokens.

Shapes: B rows, T tokens, D width.
"""

import torch


def moving_average(y_BTD: torch.Tensor, p_BT: torch.Tensor) -> torch.Tensor:
    """z_t = p_t y_t + (1 - p_t) z_{t-1}, z_{-1} = 0; autograd differentiates the loop."""
    state_BD, states = torch.zeros_like(y_BTD[:, 0]), []
    for t in range(y_BTD.shape[1]):
        state_BD = p_BT[:, t, None] * y_BTD[:, t] + (1 - p_BT[:, t, None]) * state_BD
        states.append(state_BD)
    return torch.stack(states, 1)
