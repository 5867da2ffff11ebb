"""The Triton twin of the boundary scan (sampling.py): one program a row, its state in registers.

The state is an integer whose bit k is a_{i-1-k}. Imported only where triton is installed; with
TRITON_INTERPRET=1 it runs on the CPU, which is how it is tested.

Shapes: B rows, S positions, w policy outputs (the last is the bias term).
"""

import torch
import triton
import triton.language as tl

LARGEST_WINDOW = 32  # the state is an int32


@triton.jit
def _sample_row(
    v_BSw,
    u_BS,
    forced_BS,
    length_B,
    prior,
    a_BS,
    positions,
    cap,
    width: tl.constexpr,
    capped: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    length = tl.load(length_B + row)
    shift = tl.load(prior)
    state = 0
    for i in range(0, length):
        at = row * positions + i
        # no load waits for the state; one thread's sum, in the scan's order
        u = tl.load(u_BS + at)
        forced = tl.load(forced_BS + at)
        z = tl.load(v_BSw + at * width + width - 1)
        for k in tl.static_range(width - 1):
            v = tl.load(v_BSw + at * width + k)
            z += tl.where(((state >> k) & 1) == 1, v, 0.0)
        z += shift
        if capped:
            # tanh(x) = 1 - 2 / (e^2x + 1), right at both ends: e^2x is 0 or infinite there
            z = cap * (1 - 2 / (tl.exp(2 * z / cap) + 1))
        drawn = (u < 1 / (1 + tl.exp(-z))) | (forced != 0)
        tl.store(a_BS + at, drawn.to(tl.int8))
        # bits from w - 1 on are older than the window
        state = ((state << 1) | drawn.to(tl.int32)) & ((1 << (width - 1)) - 1)


def sample(
    v_BSw: torch.Tensor,
    u_BS: torch.Tensor,
    forced: torch.Tensor,
    length_B: torch.Tensor,
    prior: torch.Tensor,
    cap: float,
) -> torch.Tensor:
    """See sampling.sample_boundaries; nothing leaves the device.

    Raises:
        ValueError: more than LARGEST_WINDOW policy outputs.
    """
    rows, positions, width = v_BSw.shape
    if width > LARGEST_WINDOW:
        raise ValueError(f"the state of the Triton scan holds a window of {LARGEST_WINDOW}")
    a_BS = torch.zeros((rows, positions), dtype=torch.int8, device=v_BSw.device)
    _sample_row[(rows,)](
        v_BSw.contiguous(),
        u_BS.float().contiguous(),
        forced.to(torch.int8).contiguous(),
        length_B.contiguous(),
        torch.as_tensor(prior, dtype=torch.float32, device=v_BSw.device),
        a_BS,
        positions,
        float(cap),
        width=width,
        capped=cap > 0,
        num_warps=1,
    )
    return a_BS.bool()
