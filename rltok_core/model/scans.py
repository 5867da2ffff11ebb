"""Scans along a sequence, exact and on any device.

Shapes: B rows, S positions, T tokens, D width, N chunks, C tokens of a chunk.
"""

import torch
import torch.nn.functional as F

CHUNK = 32


def discounted_suffix_sum(r_BS: torch.Tensor, gamma: float) -> torch.Tensor:
    """A_i = sum over k >= i of gamma^(k - i) r_k (paper.md 5), in log2(S) doubling steps."""
    total_BS = r_BS
    length, reach = r_BS.shape[1], 1
    while reach < length:
        # total_BS covers `reach` terms from i on; add the `reach` terms after them
        total_BS = total_BS + gamma**reach * F.pad(total_BS[:, reach:], (0, reach))
        reach *= 2
    return total_BS


def _recurrence(keep_BT: torch.Tensor, input_BTD: torch.Tensor) -> torch.Tensor:
    """h_t = keep_t h_{t-1} + input_t with h_{-1} = 0; one matmul a chunk, then chunk by chunk."""
    length = keep_BT.shape[1]
    chunks = -(-length // CHUNK)
    extra = chunks * CHUNK - length
    keep_BNC = F.pad(keep_BT, (0, extra)).unflatten(1, (chunks, CHUNK))
    input_BNCD = F.pad(input_BTD, (0, 0, 0, extra)).unflatten(1, (chunks, CHUNK))
    # decay[t, s] = keep_{s+1} ... keep_t for t >= s: products, not differences of logarithms,
    # so that keep = 0 is exact
    below_CC = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=keep_BT.device).tril(-1)
    factor_BNCC = torch.where(below_CC, keep_BNC[..., None], torch.ones_like(keep_BNC[..., None]))
    decay_BNCC = factor_BNCC.cumprod(2).tril()
    local_BNCD = decay_BNCC @ input_BNCD
    carry_BNC = keep_BNC.cumprod(2)
    state_BD = torch.zeros_like(input_BTD[:, 0])
    parts = []
    for n in range(chunks):
        part_BCD = torch.addcmul(local_BNCD[:, n], carry_BNC[:, n, :, None], state_BD[:, None])
        state_BD = part_BCD[:, -1]
        parts.append(part_BCD)
    return torch.cat(parts, 1)[:, :length]


class _EmaScan(torch.autograd.Function):
    """Forward: z_t = p_t y_t + (1 - p_t) z_{t-1}. Backward: the same recurrence, right to left."""

    @staticmethod
    def forward(ctx, y_BTD, p_BT):
        z_BTD = _recurrence(1 - p_BT, p_BT[..., None] * y_BTD)
        ctx.save_for_backward(y_BTD, p_BT, z_BTD)
        return z_BTD

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_BTD):
        y_BTD, p_BT, z_BTD = ctx.saved_tensors
        # h_t = dL/dz_t in full = grad_t + (1 - p_{t+1}) h_{t+1}
        keep_BT = F.pad(1 - p_BT[:, 1:], (0, 1))
        h_BTD = _recurrence(keep_BT.flip(1), grad_BTD.flip(1)).flip(1)
        previous_BTD = F.pad(z_BTD[:, :-1], (0, 0, 1, 0))
        return p_BT[..., None] * h_BTD, (h_BTD * (y_BTD - previous_BTD)).sum(-1)


def ema_scan(y_BTD: torch.Tensor, p_BT: torch.Tensor) -> torch.Tensor:
    """Exponential moving average z_t = p_t y_t + (1 - p_t) z_{t-1}, z_{-1} = 0 (paper.md 6).

    Differentiable in both arguments; computed in float32 (float64 if given), autocast or not.
    """
    with torch.autocast(y_BTD.device.type, enabled=False):
        wide = torch.promote_types(torch.promote_types(y_BTD.dtype, p_BT.dtype), torch.float32)
        return _EmaScan.apply(y_BTD.to(wide), p_BT.to(wide))
