"""Attention against a dense float64 reference, query by query."""

import pytest
import torch

from rltok_core.model.attention import (
    local_attention,
    rope_table,
    rotate,
    token_attention,
)


def _reference(q_BSHd, k_BSHd, v_BSHd, window, softcap):
    """One query at a time over exactly the keys it may see."""
    out_BSHd = torch.zeros_like(q_BSHd)
    for i in range(q_BSHd.shape[1]):
        first = max(0, i - window + 1)
        score = torch.einsum("bhd,bkhd->bhk", q_BSHd[:, i], k_BSHd[:, first : i + 1])
        weight = torch.softmax(softcap * torch.tanh(score / softcap), -1)
        out_BSHd[:, i] = torch.einsum("bhk,bkhd->bhd", weight, v_BSHd[:, first : i + 1])
    return out_BSHd


def _run(function, inputs, dtype):
    inputs = [x.to(dtype, copy=True).requires_grad_() for x in inputs]
    out = function(*inputs)
    weight = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).view_as(out).to(dtype)
    (out * weight).sum().backward()
    return [out.detach(), *(x.grad for x in inputs)]


def _qkv(length, seed, scale=6.0, d_head=6):
    generator = torch.Generator().manual_seed(seed)
    shape = (2, length, 3, d_head)
    # scores reach +-100: the soft cap matters
    return [
        torch.randn(shape, generator=generator, dtype=torch.float64) * s
        for s in (scale, scale, 1.0)
    ]


def _packed(q_BSHd, k_BSHd, v_BSHd):
    """What the layer gives: q, k and v of every head side by side, q not yet scaled."""
    return torch.cat([q_BSHd * q_BSHd.shape[-1] ** 0.5, k_BSHd, v_BSHd], 2).flatten(2)


def _unturned(*shape):
    """A table that rotates by nothing: cosines 1, sines 0."""
    return torch.cat([torch.ones(*shape, 3), torch.zeros(*shape, 3)], -1)


def _local(window):
    def attend(*qkv):
        table = _unturned(qkv[0].shape[1])
        out = local_attention(_packed(*qkv), table, qkv[0].shape[2], window, 50.0)
        return out.view_as(qkv[0])

    return attend


def _token(*qkv):
    table = _unturned(*qkv[0].shape[:2])
    return token_attention(_packed(*qkv), table, qkv[0].shape[2], 50.0).view_as(qkv[0])


# float64 takes the PyTorch path, float32 the compiled one: each is held to the reference
DTYPES = ((torch.float64, 1e-9), (torch.float32, 2e-4))


@pytest.mark.parametrize("window", [1, 4, 8, 17, 64])
@pytest.mark.parametrize("length", [1, 3, 16, 33, 130])
def test_local_attention_equals_the_dense_reference(window, length):
    inputs = _qkv(length, seed=window * 1000 + length)
    expected = _run(lambda *x: _reference(*x, window, 50.0), inputs, torch.float64)
    for dtype, tolerance in DTYPES:
        actual = _run(_local(window), inputs, dtype)
        for a, e in zip(actual, expected, strict=True):
            torch.testing.assert_close(a.double(), e, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("length", [1, 5, 60, 256])
def test_token_attention_equals_the_dense_reference(length):
    inputs = _qkv(length, seed=length)
    expected = _run(lambda *x: _reference(*x, length, 50.0), inputs, torch.float64)
    for dtype, tolerance in DTYPES:
        actual = _run(_token, inputs, dtype)
        for a, e in zip(actual, expected, strict=True):
            torch.testing.assert_close(a.double(), e, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", ["local", "token"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_follows_moves_nothing_before(kind, dtype):
    inputs = [x.to(dtype) for x in _qkv(40, seed=3, scale=1.0)]
    changed = [x.clone() for x in inputs]
    for x in changed:
        x[:, 25:] += 1.0
    attend = _local(8) if kind == "local" else _token
    outs = [attend(*x) for x in (inputs, changed)]
    torch.testing.assert_close(outs[0][:, :25], outs[1][:, :25], rtol=0, atol=1e-6)
    assert not torch.allclose(outs[0][:, 25:], outs[1][:, 25:], atol=1e-3)


@pytest.mark.parametrize("kind", ["local", "token"])
def test_compiled_rotation_and_scale_equal_the_pytorch_path(kind):
    generator = torch.Generator().manual_seed(12)
    qkv_BSX = torch.randn(2, 30, 3 * 4 * 10, generator=generator, dtype=torch.float64) * 2
    weight_BSD = torch.randn(2, 30, 40, generator=generator, dtype=torch.float64)
    table = rope_table(300, 10, 10_000.0, qkv_BSX.device)
    positions = torch.stack([torch.randperm(300, generator=generator)[:30] for _ in range(2)])
    results = []
    for dtype in (torch.float64, torch.float32):
        qkv = qkv_BSX.to(dtype, copy=True).requires_grad_()
        if kind == "local":
            out = local_attention(qkv, table[:30], 4, 7, 50.0)
        else:
            out = token_attention(qkv, table[positions], 4, 50.0)
        (out * weight_BSD).sum().backward()
        results.append((out.detach().double(), qkv.grad.double()))
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


def test_rope_depends_on_the_distance_alone_and_positions_are_exact():
    generator = torch.Generator().manual_seed(4)
    q, k = (torch.randn(1, 1, 1, 32, generator=generator, dtype=torch.float64) for _ in range(2))
    table = rope_table(4096, 32, 10_000.0, q.device)

    def score(i, j):
        return (rotate(q, table[None, i : i + 1]) * rotate(k, table[None, j : j + 1])).sum()

    # 4095 and 4088 are one number in bf16 (ledger 3)
    torch.testing.assert_close(score(4095, 4088), score(7, 0), rtol=1e-5, atol=1e-5)
    assert abs(score(4095, 4088) - score(4095, 4095)) > 1e-2
    # a quarter turn of the first pair, by hand
    angle = torch.tensor(3.0, dtype=torch.float64)
    turned = rotate(q, table[None, 3:4]).flatten()
    expected = q.flatten()[0] * angle.cos() - q.flatten()[1] * angle.sin()
    torch.testing.assert_close(turned[0], expected, rtol=1e-6, atol=1e-6)


def test_rounded_positions_are_bf16s_own():
    """ledger 3: 8 significant bits, so exact to 256, then every 2nd, 4th ... neighbour alike."""
    exact, rounded = (rope_table(1024, 8, 10_000.0, torch.device("cpu"), r) for r in (False, True))
    assert torch.equal(exact[:257], rounded[:257])
    # halves go to the even neighbour: 258, 260 | 260, 262; 514 lies half way between 512 and 516
    for position, stored in ((257, 256), (258, 258), (259, 260), (514, 512), (518, 520)):
        assert torch.equal(rounded[position], exact[stored]), position
