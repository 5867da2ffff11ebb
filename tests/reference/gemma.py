"""The U-Net as it is usually put together: transformers' Gemma-2 layers run eagerly under a dense
mask, one-hot matrices between bytes and tokens, boundaries drawn in a Python loop.

Shapes: B rows, S positions, T tokens, D width, d head size.
"""

import copy
from contextlib import contextmanager
from unittest.mock import patch

import torch
from torch import nn
from transformers import Gemma2Config
from transformers.models.gemma2.modeling_gemma2 import Gemma2DecoderLayer

from rltok_core.bench.reference import reference
from rltok_core.boundaries import policy
from rltok_core.boundaries.contract import Tokens, select
from rltok_core.model.layers import DecoderLayer
from rltok_core.model.unet import UNet

KINDS = {True: "sliding_attention", False: "full_attention"}


def halved(weight_DX: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows of our q or k projection in their order: channel pair j is (j, j + d/2), ours
    (2j, 2j + 1)."""
    pairs = weight_DX.unflatten(0, (heads, -1, 2))
    return pairs.transpose(1, 2).flatten(0, 2)


def gemma_config(width: int, heads: int, d_mlp: int, window: int | None) -> Gemma2Config:
    return Gemma2Config(
        vocab_size=8,
        hidden_size=width,
        intermediate_size=d_mlp,
        num_hidden_layers=1,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=width // heads,
        query_pre_attn_scalar=width // heads,
        attn_logit_softcapping=50.0,
        sliding_window=window or 1,
        rope_theta=10_000.0,
        layer_types=[KINDS[window is not None]],
        attn_implementation="eager",
    )


class GemmaLayer(nn.Module):
    """Gemma2DecoderLayer with the weights of one of our layers, called like it."""

    def __init__(self, ours: DecoderLayer):
        super().__init__()
        attention, mlp = ours.attention, ours.mlp
        width, d_mlp = attention.out.in_features, mlp.down.in_features
        self.window = attention.window
        config = gemma_config(width, attention.n_heads, d_mlp, self.window)
        self.layer = Gemma2DecoderLayer(config, 0)
        q_DD, k_DD, v_DD = attention.qkv.weight.detach().chunk(3)
        gate, up = mlp.gate_up.weight.detach().chunk(2)
        self.layer.load_state_dict(
            {
                "input_layernorm.weight": ours.before_attention.weight,
                "self_attn.q_proj.weight": halved(q_DD, attention.n_heads),
                "self_attn.k_proj.weight": halved(k_DD, attention.n_heads),
                "self_attn.v_proj.weight": v_DD,
                "self_attn.o_proj.weight": attention.out.weight,
                "post_attention_layernorm.weight": ours.after_attention.weight,
                "pre_feedforward_layernorm.weight": ours.before_mlp.weight,
                "mlp.gate_proj.weight": gate,
                "mlp.up_proj.weight": up,
                "mlp.down_proj.weight": mlp.down.weight,
                "post_feedforward_layernorm.weight": ours.after_mlp.weight,
            }
        )

    def forward(self, x_BSD, table_BSd, mask=None):
        """table_BSd as for our layer; `mask` is its FlexAttention mask, which isn't needed here."""
        cosine, sine = table_BSd.expand(len(x_BSD), -1, -1).chunk(2, dim=-1)
        rotary = tuple(torch.cat([half, half], -1).to(x_BSD.dtype) for half in (cosine, sine))
        index_S = torch.arange(x_BSD.shape[1], device=x_BSD.device)
        distance_SS = index_S[:, None] - index_S
        hidden_SS = distance_SS < 0
        if self.window is not None:
            hidden_SS |= distance_SS >= self.window
        added_SS = torch.zeros_like(hidden_SS, dtype=x_BSD.dtype)
        added_SS.masked_fill_(hidden_SS, torch.finfo(x_BSD.dtype).min)
        return self.layer(x_BSD, rotary, added_SS[None, None], position_ids=None)


def eager_unet(model: UNet) -> UNet:
    """A copy of the network, with the same weights, whose layers are Gemma-2's."""
    eager = copy.deepcopy(model)
    for name in ("down", "mid", "up"):
        setattr(eager, name, nn.ModuleList(GemmaLayer(layer) for layer in getattr(model, name)))
    return eager


@contextmanager
def eagerly(model: UNet):
    """Bytes to tokens and back by one-hot matrices, sampling by a loop, while it lasts."""
    estimator, pooling = model.estimator, reference("pooling")

    def sample(v_BSw, u_BS, forced_BS, length_B, prior, cap):
        return reference("sampling").sample(v_BSw.detach(), u_BS, float(prior), cap, forced_BS)

    def to_tokens(x_BSD, proposal) -> Tokens:
        tokens = select(x_BSD.detach()[..., :1], proposal.boundary_BS)  # positions and counts
        tokens.x_BTD = pooling.select(x_BSD, proposal.boundary_BS)
        return tokens

    def to_bytes(y_BTD, tokens, proposal) -> torch.Tensor:
        return pooling.distribute(y_BTD, proposal.boundary_BS)

    with (
        patch.object(policy, "sample_boundaries", sample),
        patch.object(estimator, "to_tokens", to_tokens),
        patch.object(estimator, "to_bytes", to_bytes),
    ):
        yield
