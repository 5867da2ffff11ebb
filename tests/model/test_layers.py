"""Our decoder layer against transformers' Gemma2DecoderLayer with the same weights."""

import pytest
import torch
from transformers.masking_utils import create_causal_mask, create_sliding_window_causal_mask
from transformers.models.gemma2.modeling_gemma2 import (
    Gemma2DecoderLayer,
    Gemma2RMSNorm,
    Gemma2RotaryEmbedding,
)

from rltok_core.bench.reference import reference
from rltok_core.model.attention import rope_table
from rltok_core.model.layers import DecoderLayer, GeGLU
from rltok_core.model.norm import RMSNorm

WIDTH, HEADS = 64, 2


def _reference(kind: str, d_mlp: int, window: int, generator: torch.Generator):
    """A Gemma-2 layer with random weights, norms included, and its rotary embedding."""
    config = reference("gemma").gemma_config(
        WIDTH, HEADS, d_mlp, window if kind == "sliding_attention" else None
    )
    layer = Gemma2DecoderLayer(config, 0).eval()
    with torch.no_grad():
        for parameter in layer.parameters():
            scale = 0.3 if parameter.dim() == 1 else parameter.shape[1] ** -0.5
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
    return config, layer, Gemma2RotaryEmbedding(config)


def _interleaved(weight_DD: torch.Tensor) -> torch.Tensor:
    """Rows of a q or k projection in our order: channel pair j is (2j, 2j + 1), theirs
    (j, j + d/2)."""
    halves = weight_DD.view(HEADS, 2, WIDTH // HEADS // 2, -1)
    return halves.transpose(1, 2).reshape_as(weight_DD)


def _ours(theirs: Gemma2DecoderLayer, d_mlp: int, window: int | None) -> DecoderLayer:
    layer = DecoderLayer(WIDTH, HEADS, d_mlp, window)
    attention, mlp = theirs.self_attn, theirs.mlp
    q, k = _interleaved(attention.q_proj.weight), _interleaved(attention.k_proj.weight)
    layer.load_state_dict(
        {
            "before_attention.weight": theirs.input_layernorm.weight,
            "attention.qkv.weight": torch.cat([q, k, attention.v_proj.weight]),
            "attention.out.weight": attention.o_proj.weight,
            "after_attention.weight": theirs.post_attention_layernorm.weight,
            "before_mlp.weight": theirs.pre_feedforward_layernorm.weight,
            "mlp.gate_up.weight": torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]),
            "mlp.down.weight": mlp.down_proj.weight,
            "after_mlp.weight": theirs.post_feedforward_layernorm.weight,
        }
    )
    return layer


def _compare(kind, window, positions_BS, d_mlp, seed):
    generator = torch.Generator().manual_seed(seed)
    config, theirs, rotary = _reference(kind, d_mlp, window, generator)
    ours = _ours(theirs, d_mlp, window if kind == "sliding_attention" else None)
    x_BSD = torch.randn(*positions_BS.shape, WIDTH, generator=generator)
    weight_BSD = torch.randn(x_BSD.shape, generator=generator)
    make = {
        "sliding_attention": create_sliding_window_causal_mask,
        "full_attention": create_causal_mask,
    }[kind]
    mask = make(config, x_BSD, attention_mask=None, cache=None)
    table = rope_table(int(positions_BS.max()) + 1, WIDTH // HEADS, 10_000.0, x_BSD.device)
    turn = table if kind == "sliding_attention" else table[positions_BS]
    results = []
    for function in (
        lambda x: theirs(x, rotary(x, positions_BS), mask, position_ids=positions_BS),
        lambda x: ours(x, turn),
    ):
        x = x_BSD.clone().requires_grad_()
        y = function(x)
        (y * weight_BSD).sum().backward()
        results.append((y.detach(), x.grad))
    torch.testing.assert_close(results[1][0], results[0][0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(results[1][1], results[0][1], rtol=1e-4, atol=1e-4)
    for name, theirs_grad, ours_grad in (
        ("down", theirs.mlp.down_proj.weight.grad, ours.mlp.down.weight.grad),
        ("out", theirs.self_attn.o_proj.weight.grad, ours.attention.out.weight.grad),
        (
            "q",
            _interleaved(theirs.self_attn.q_proj.weight.grad),
            ours.attention.qkv.weight.grad[:WIDTH],
        ),
        ("norm", theirs.input_layernorm.weight.grad, ours.before_attention.weight.grad),
    ):
        scale = theirs_grad.abs().max()
        error = (ours_grad - theirs_grad).abs().max() / scale
        assert error < 1e-5, (name, float(error))


@pytest.mark.parametrize(("window", "length"), [(4, 50), (8, 40), (64, 150), (64, 30)])
def test_byte_layer_equals_gemma2_sliding(window, length):
    # transformers' convention is key > query - window: `window` keys, the query's own among them,
    # which is ours too (ledger 9); any other meaning would fail here
    _compare("sliding_attention", window, torch.arange(length).repeat(2, 1), WIDTH, seed=window)


def test_token_layer_equals_gemma2_full_attention_at_scattered_positions():
    generator = torch.Generator().manual_seed(5)
    rows = [torch.randperm(256, generator=generator)[:70].sort()[0] for _ in range(2)]
    _compare("full_attention", 64, torch.stack(rows), 4 * WIDTH, seed=6)


def test_norm_equals_gemma2_and_its_gradient_is_exact():
    generator = torch.Generator().manual_seed(7)
    x_ND = torch.randn(37, 24, generator=generator) * 3
    ours, theirs = RMSNorm(24), Gemma2RMSNorm(24)
    with torch.no_grad():
        ours.weight.normal_(generator=generator)
        theirs.weight.copy_(ours.weight)
    torch.testing.assert_close(ours(x_ND), theirs(x_ND), rtol=1e-6, atol=1e-6)
    wide = RMSNorm(6).double()
    with torch.no_grad():
        wide.weight.normal_(generator=generator)
    x_ND = torch.randn(2, 3, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda x, w: torch.func.functional_call(wide, {"weight": w}, (x,)),
        (x_ND, wide.weight.detach().clone().requires_grad_()),
    )


@pytest.mark.parametrize("with_residual", [False, True])
def test_compiled_norm_equals_float64_with_its_gradients(with_residual):
    generator = torch.Generator().manual_seed(10)
    norm = RMSNorm(24)
    with torch.no_grad():
        norm.weight.normal_(generator=generator)
    x, residual, weight = torch.randn(3, 2, 500, 24, generator=generator)
    results = []
    for dtype in (torch.float64, torch.float32):
        norm.to(dtype).zero_grad()
        inputs = [t.to(dtype, copy=True).requires_grad_() for t in (x, residual)]
        y = norm(*inputs) if with_residual else norm(inputs[0])
        (y * weight).sum().backward()
        grads = [t.grad for t in inputs if t.grad is not None]
        results.append([t.double() for t in (y.detach(), norm.weight.grad.clone(), *grads)])
    assert len(results[0]) == (4 if with_residual else 3)
    for expected, actual in zip(*results, strict=True):
        error = (actual - expected).abs().max() / expected.abs().max()
        assert error < 1e-6


def test_compiled_geglu_equals_float64_with_its_gradient_from_tail_to_tail():
    gate_up_NF = torch.stack([torch.linspace(-30, 30, 4001), torch.full((4001,), 1.5)], 1)
    results = []
    for dtype in (torch.float64, torch.float32):
        x = gate_up_NF.to(dtype, copy=True).requires_grad_()
        mlp = GeGLU(1, 1).to(dtype)
        mlp.gate_up, mlp.down = torch.nn.Identity(), torch.nn.Identity()
        y = mlp(x)
        y.sum().backward()
        results.append((y.detach().double(), x.grad.double()))
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("where", ["qkv", "gate_up"])
def test_a_nan_weight_is_never_swallowed(where):
    layer = DecoderLayer(WIDTH, HEADS, WIDTH, 8)
    projection = layer.attention.qkv if where == "qkv" else layer.mlp.gate_up
    with torch.no_grad():
        projection.weight[0, 0] = float("nan")
    table = rope_table(20, WIDTH // HEADS, 10_000.0, torch.device("cpu"))
    y_BSD = layer(torch.randn(1, 20, WIDTH), table)
    assert torch.isnan(y_BSD).any()


def test_norm_of_zeros_is_finite():
    x_ND = torch.zeros(3, 8, requires_grad=True)
    RMSNorm(8)(x_ND).sum().backward()
    assert torch.isfinite(x_ND.grad).all()


def test_geglu_gradient_is_exact():
    mlp = GeGLU(4, 6).double()
    x_ND = torch.randn(
        5, 4, generator=torch.Generator().manual_seed(8), dtype=torch.float64, requires_grad=True
    )
    assert torch.autograd.gradcheck(mlp, (x_ND,))


def test_layer_under_autocast_keeps_norms_in_float32_and_stays_close():
    layer = DecoderLayer(WIDTH, HEADS, WIDTH, 8)
    x_BSD = torch.randn(2, 40, WIDTH, generator=torch.Generator().manual_seed(9))
    table = rope_table(40, WIDTH // HEADS, 10_000.0, x_BSD.device)
    plain = layer(x_BSD, table)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = layer(x_BSD, table)
        assert layer.before_mlp(x_BSD.bfloat16()).dtype == torch.float32
    assert rounded.dtype == torch.float32
    error = (rounded - plain).abs().max()
    assert 0 < error < 0.2  # bf16 was used, and it is only rounding
    rounded.sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in layer.parameters())
