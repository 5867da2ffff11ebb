"""The Gemma-2 decoder layer (paper.md 2): norms before and after both sub-layers, GeGLU, no biases.

A byte layer (window given, MLP width D) has 7 D^2 + 4 D weights, a mid layer (full attention, MLP
width 4 D) 16 D^2 + 4 D. Projections that read the same vector are one matmul.

Shapes: B rows, S positions (bytes or tokens), H heads, d head size, D model width.
"""

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import nn

from rltok_core.model.attention import Past, local_attention, past_attention, token_attention
from rltok_core.model.functions import CompiledGeGLU
from rltok_core.model.kernels import use_loops
from rltok_core.model.norm import RMSNorm

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask


class Attention(nn.Module):
    """Multi-head attention; `window` None: every earlier token, else the last `window` bytes."""

    def __init__(self, d_model: int, n_heads: int, window: int | None, softcap: float):
        super().__init__()
        self.n_heads, self.window, self.softcap = n_heads, window, softcap
        self.qkv = nn.Linear(d_model, 3 * d_model, bias=False)
        self.out = nn.Linear(d_model, d_model, bias=False)

    def forward(
        self,
        x_BSD: torch.Tensor,
        table_BSd: torch.Tensor,
        past: Past | None = None,
        mask: "BlockMask | None" = None,
    ) -> torch.Tensor:
        """table_BSd: rope_table's row of each position; Sd for byte layers, in order.

        past: keys and values of earlier positions; then x_BSD is the one position after them.
        mask: given where FlexAttention was picked (flex.py); it says itself who sees whom.
        """
        qkv_BSX, cap = self.qkv(x_BSD), self.softcap
        if past is not None:
            mixed_BSD = past_attention(qkv_BSX, table_BSd, past, self.n_heads, cap)
        elif mask is not None:
            from rltok_core.model.flex import masked_attention  # slow to import

            mixed_BSD = masked_attention(qkv_BSX, table_BSd, self.n_heads, cap, mask)
        elif self.window is None:
            mixed_BSD = token_attention(qkv_BSX, table_BSd, self.n_heads, cap)
        else:
            mixed_BSD = local_attention(qkv_BSX, table_BSd, self.n_heads, self.window, cap)
        return self.out(mixed_BSD)


class GeGLU(nn.Module):
    """down(gelu_tanh(gate(x)) * up(x)); gate and up are one matmul, gate first."""

    def __init__(self, d_model: int, d_mlp: int):
        super().__init__()
        self.gate_up = nn.Linear(d_model, 2 * d_mlp, bias=False)
        self.down = nn.Linear(d_mlp, d_model, bias=False)

    def forward(self, x_BSD: torch.Tensor) -> torch.Tensor:
        gate_up = self.gate_up(x_BSD)
        if use_loops(gate_up):
            return self.down(CompiledGeGLU.apply(gate_up))
        gate, up = gate_up.chunk(2, dim=-1)
        return self.down(F.gelu(gate, approximate="tanh") * up)


class DecoderLayer(nn.Module):
    """x + norm(attention(norm(x))), then x + norm(mlp(norm(x)))."""

    def __init__(
        self, d_model: int, n_heads: int, d_mlp: int, window: int | None, softcap: float = 50.0
    ):
        super().__init__()
        self.before_attention = RMSNorm(d_model)
        self.attention = Attention(d_model, n_heads, window, softcap)
        self.after_attention = RMSNorm(d_model)
        self.before_mlp = RMSNorm(d_model)
        self.mlp = GeGLU(d_model, d_mlp)
        self.after_mlp = RMSNorm(d_model)

    def forward(
        self,
        x_BSD: torch.Tensor,
        table_BSd: torch.Tensor,
        past: Past | None = None,
        mask: "BlockMask | None" = None,
    ) -> torch.Tensor:
        mixed_BSD = self.attention(self.before_attention(x_BSD), table_BSd, past, mask)
        x_BSD = self.after_attention(mixed_BSD, residual_D=x_BSD)
        return self.after_mlp(self.mlp(self.before_mlp(x_BSD)), residual_D=x_BSD)
