"""Autograd functions around cpu_kernels.py: float32 tensors on the CPU in, the same out.

Each has one caller, which holds the PyTorch path for every other device and type.

Shapes: as in cpu_kernels.py; ... any leading axes.
"""

import numpy as np
import torch
from torch.autograd.function import once_differentiable

from rltok_core.model import cpu_kernels


def _array(x: torch.Tensor) -> np.ndarray:
    return x.detach().contiguous().numpy()


class CompiledRMSNorm(torch.autograd.Function):
    """x (..., D), weight (D) -> residual + x / sqrt(mean(x^2) + eps) * (1 + weight).

    `residual` (..., D) may be None, for zero.
    """

    @staticmethod
    def forward(ctx, x, weight, eps, residual):
        x = x.contiguous()
        y, scale_N = torch.empty_like(x), x.new_empty(x.shape[:-1].numel())
        rows = (-1, x.shape[-1])
        cpu_kernels.rms_norm_forward(
            _array(x).reshape(rows),
            _array(weight),
            np.float32(eps),
            _array(x[:0] if residual is None else residual).reshape(rows),
            _array(y).reshape(rows),
            _array(scale_N),
        )
        ctx.save_for_backward(x, weight, scale_N)
        ctx.residual = residual is not None
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        x, weight, scale_N = ctx.saved_tensors
        dx, dweight_D = torch.empty_like(x), np.zeros(x.shape[-1])
        rows = (-1, x.shape[-1])
        cpu_kernels.rms_norm_backward(
            _array(g).reshape(rows),
            _array(x).reshape(rows),
            _array(weight),
            _array(scale_N),
            _array(dx).reshape(rows),
            dweight_D,
        )
        return dx, torch.from_numpy(dweight_D).float(), None, g if ctx.residual else None


class CompiledGeGLU(torch.autograd.Function):
    """gate_up (..., 2 F) -> gelu_tanh(gate) * up (..., F)."""

    @staticmethod
    def forward(ctx, gate_up):
        gate_up = gate_up.contiguous()
        width = gate_up.shape[-1] // 2
        out = gate_up.new_empty((*gate_up.shape[:-1], width))
        cpu_kernels.geglu_forward(
            _array(gate_up).reshape(-1, 2 * width), _array(out).reshape(-1, width)
        )
        ctx.save_for_backward(gate_up)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (gate_up,) = ctx.saved_tensors
        dgate_up = torch.empty_like(gate_up)
        cpu_kernels.geglu_backward(
            _array(g).reshape(-1, g.shape[-1]),
            _array(gate_up).reshape(-1, gate_up.shape[-1]),
            _array(dgate_up).reshape(-1, gate_up.shape[-1]),
        )
        return dgate_up


class CompiledLogProbability(torch.autograd.Function):
    """logits (N, C), target (N) -> log softmax of the logits at the target (N)."""

    @staticmethod
    def forward(ctx, logits_NC, target_N):
        logits_NC = logits_NC.contiguous()
        logp_N = logits_NC.new_empty(target_N.shape)
        total_N = torch.empty_like(logp_N)
        cpu_kernels.cross_entropy_forward(
            _array(logits_NC), _array(target_N), _array(logp_N), _array(total_N)
        )
        ctx.save_for_backward(logits_NC, target_N, total_N)
        return logp_N

    @staticmethod
    @once_differentiable
    def backward(ctx, g_N):
        logits_NC, target_N, total_N = ctx.saved_tensors
        dlogits_NC = torch.empty_like(logits_NC)
        cpu_kernels.cross_entropy_backward(
            _array(g_N), _array(logits_NC), _array(target_N), _array(total_N), _array(dlogits_NC)
        )
        return dlogits_NC, None


def _by_head(x: torch.Tensor, size: int) -> np.ndarray:
    """(B, S, heads * size) as (B S, heads, size)."""
    return _array(x).reshape(-1, x.shape[-1] // size, size)


class CompiledLocalAttention(torch.autograd.Function):
    """qkv (B, S, 3 D), neither scaled nor turned; table (S, d), cosines then sines -> (B, S, D)."""

    @staticmethod
    def forward(ctx, qkv, table, heads, window, softcap):
        qkv = qkv.contiguous()
        rows, length, width = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
        size = width // heads
        ctx.size, ctx.scale = size, np.float32(size**-0.5)
        out, qk = qkv.new_empty((rows, length, width)), qkv.new_empty((rows, length, 2 * width))
        capped = qkv.new_empty((rows * length, heads, window))
        weight = torch.empty_like(capped)
        cpu_kernels.local_attention_forward(
            _by_head(qkv, size),
            _array(table),
            length,
            ctx.scale,
            np.float32(softcap),
            _by_head(qk, size),
            _array(capped),
            _array(weight),
            _by_head(out, size),
        )
        ctx.save_for_backward(qkv, table, qk, capped, weight)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        qkv, table, qk, capped, weight = ctx.saved_tensors
        dqkv = torch.empty_like(qkv)
        cpu_kernels.local_attention_backward(
            _by_head(g, ctx.size),
            _by_head(qkv, ctx.size),
            _array(table),
            qkv.shape[1],
            ctx.scale,
            _by_head(qk, ctx.size),
            _array(capped),
            _array(weight),
            _by_head(dqkv, ctx.size),
        )
        return dqkv, None, None, None, None


class CompiledTokenAttention(torch.autograd.Function):
    """qkv (B, T, 3 D); table (B, T, d), cosines then sines, a row a token -> (B, T, D)."""

    @staticmethod
    def forward(ctx, qkv, table, heads, softcap):
        qkv = qkv.contiguous()
        rows, length, width = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
        size = width // heads
        ctx.size, ctx.scale = size, np.float32(size**-0.5)
        q, k, v = (qkv.new_empty((rows * heads, length, size)) for _ in range(3))
        table = table.reshape(-1, size)
        cpu_kernels.split_heads(
            _by_head(qkv, size), _array(table), ctx.scale, _array(q), _array(k), _array(v)
        )
        capped = torch.bmm(q, k.transpose(1, 2))
        weight = torch.empty_like(capped)
        cpu_kernels.causal_softmax_forward(_array(capped), np.float32(softcap), _array(weight))
        out = torch.bmm(weight, v)
        ctx.save_for_backward(table, q, k, v, capped, weight)
        return out.view(rows, heads, length, size).transpose(1, 2).reshape(rows, length, width)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        table, q, k, v, capped, weight = ctx.saved_tensors
        rows, length, width = g.shape
        g = g.view(rows, length, -1, ctx.size).transpose(1, 2).reshape(q.shape)
        dv = torch.bmm(weight.transpose(1, 2), g)
        dscore = torch.bmm(g, v.transpose(1, 2))
        cpu_kernels.causal_softmax_backward(_array(dscore), _array(capped), _array(weight))
        dq, dk = torch.bmm(dscore, k), torch.bmm(dscore.transpose(1, 2), q)
        dqkv = g.new_empty((rows, length, 3 * width))
        cpu_kernels.merge_heads(
            _array(dq),
            _array(dk),
            _array(dv),
            _array(table),
            ctx.scale,
            _by_head(dqkv, ctx.size),
        )
        return dqkv, None, None, None
