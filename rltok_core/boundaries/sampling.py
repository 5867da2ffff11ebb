"""Sequential boundary sampling: every logit needs the w - 1 boundaries before it.

Two twins: a numba scan on the host, and one Triton program a row on a GPU (sampling_triton.py),
which nothing leaves. Neither carries a gradient: the policy computes every logit again in one
vectorised pass (policy.py).

Shapes: B rows, S positions, w policy outputs (the last is the bias term).
"""

import numba
import numpy as np
import torch

from rltok_core.model import kernels


@numba.njit(cache=True)
def _scan(v_BSw, u_BS, forced_BS, length_B, prior, cap, a_BS):
    """Draw a_BS position by position: each logit needs the w - 1 boundaries before it."""
    n_rows, _, width = v_BSw.shape
    for row in range(n_rows):
        for i in range(length_B[row]):
            if forced_BS[row, i]:
                a_BS[row, i] = True
                continue
            z = v_BSw[row, i, width - 1]
            for k in range(1, min(width, i + 1)):
                if a_BS[row, i - k]:
                    z += v_BSw[row, i, k - 1]
            z += prior
            if cap > 0:
                z = cap * np.tanh(z / cap)
            a_BS[row, i] = u_BS[row, i] < np.float32(1.0) / (np.float32(1.0) + np.exp(-z))


def sample_boundaries(
    v_BSw: torch.Tensor,
    u_BS: torch.Tensor,
    forced: torch.Tensor,
    length_B: torch.Tensor,
    prior: torch.Tensor,
    cap: float,
) -> torch.Tensor:
    """Sample a_BS (bool) from the windowed policy with the given uniforms, O(B S w).

    Args:
        v_BSw: scaled policy outputs V / 16; column k - 1 multiplies a_{i-k}, the last is the bias.
        u_BS: uniforms in [0, 1).
        forced: bool, positions whose boundary is 1 whatever the policy says.
        length_B: valid positions of a row; a_BS is False beyond them.
        prior: a scalar added to every logit; cap: soft cap of the logits, 0 for none.
    """
    v_BSw = v_BSw.detach().float()
    if kernels.pick("sampling", kernels.Case(v_BSw.device.type, v_BSw.dtype)) == "triton":
        from rltok_core.boundaries.sampling_triton import sample  # needs triton

        return sample(v_BSw, u_BS, forced, length_B, prior, cap)
    a_BS = torch.zeros(u_BS.shape, dtype=torch.bool)
    host = [t.detach().cpu().numpy() for t in (v_BSw, u_BS, forced, length_B)]
    _scan(*host, np.float32(float(prior)), np.float32(cap), a_BS.numpy())
    return a_BS.to(u_BS.device)
