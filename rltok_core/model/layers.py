"""The Gemma-2 decoder layer (paper.md 2): norms before and after both sub-layers, GeGLU, no biases.

A byte layer (window given, MLP width D) has 7 D^2 + 4 D weights, a mid layer (full attention, MLP
width 4 D) 16 D^2 + 4 D. Projections that read the same vector are one matmul.

Shapes: B rows, S positions (bytes or tokens), H heads, d head size, D model width.
"""

import torch
import torch.nn.functional as F
from torch import nn

from rltok_core.model.attention import local_attention, rotate, token_attention
from rltok_core.model.norm import RMSNorm


class Attention(nn.Module):
    """Multi-head attention; `window` None: every earlier token, else the last `window` bytes."""

    def __init__(self, d_model: int, n_heads: int, window: int | None, softcap: float):
        super().__init__()
        self.n_heads, self.d_head = n_heads, d_model // n_heads
        self.window, self.softcap = window, softcap
        self.qkv = nn.Linear(d_model, 3 * d_model, bias=False)
        self.out = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x_BSD: torch.Tensor, turn_BSd: torch.Tensor) -> torch.Tensor:
        """turn_BSd: attention.rope_table at each position, scaled or not; q gets d^-1/2 here."""
        qkv_BSHd = self.qkv(x_BSD).unflatten(-1, (3 * self.n_heads, self.d_head))
        v_BSHd = qkv_BSHd[:, :, 2 * self.n_heads :]
        turned_BSHd = rotate(qkv_BSHd[:, :, : 2 * self.n_heads], turn_BSd).to(v_BSHd.dtype)
        q_BSHd, k_BSHd = turned_BSHd.chunk(2, dim=2)
        q_BSHd = q_BSHd * self.d_head**-0.5
        if self.window is None:
            mixed_BSHd = token_attention(q_BSHd, k_BSHd, v_BSHd, self.softcap)
        else:
            mixed_BSHd = local_attention(q_BSHd, k_BSHd, v_BSHd, self.window, self.softcap)
        return self.out(mixed_BSHd.flatten(-2))


class GeGLU(nn.Module):
    """down(gelu_tanh(gate(x)) * up(x)); gate and up are one matmul, gate first."""

    def __init__(self, d_model: int, d_mlp: int):
        super().__init__()
        self.gate_up = nn.Linear(d_model, 2 * d_mlp, bias=False)
        self.down = nn.Linear(d_mlp, d_model, bias=False)

    def forward(self, x_BSD: torch.Tensor) -> torch.Tensor:
        gate, up = self.gate_up(x_BSD).chunk(2, dim=-1)
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

    def forward(self, x_BSD: torch.Tensor, turn_BSd: torch.Tensor) -> torch.Tensor:
        mixed_BSD = self.attention(self.before_attention(x_BSD), turn_BSd)
        x_BSD = x_BSD + self.after_attention(mixed_BSD)
        return x_BSD + self.after_mlp(self.mlp(self.before_mlp(x_BSD)))
