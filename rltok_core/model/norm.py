"""Gemma's RMSNorm: y = x / sqrt(mean(x^2) + eps) * (1 + w), computed in float32.

Shapes: D width, ... any leading axes.
"""

import torch
import torch.nn.functional as F
from torch import nn


def widened(x: torch.Tensor) -> torch.Tensor:
    """float32 at least: what norms, softmaxes and losses are computed in."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


class RMSNorm(nn.Module):
    """RMSNorm with weight (1 + w), w zero at the start (Gemma 2); float32 inside and out."""

    def __init__(self, d_model: int, eps: float = 1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(d_model))
        self.eps = eps

    def forward(self, x_D: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(widened(x_D), self.weight.shape, 1 + self.weight, self.eps)
