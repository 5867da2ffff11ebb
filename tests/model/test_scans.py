"""Scans against plain float64 loops, forward and gradient."""

import pytest
import torch

from rltok_core.bench.reference import reference
from rltok_core.model.scans import CHUNK, discounted_suffix_sum, ema_scan


@pytest.mark.parametrize("length", [1, 2, 5, 64, 97])
@pytest.mark.parametrize("gamma", [0.0, 0.9, 0.99, 1.0])
def test_discounted_suffix_sum_equals_a_loop(length, gamma):
    r_BS = torch.randn(3, length, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected_BS = torch.zeros_like(r_BS)
    later_B = torch.zeros(3, dtype=torch.float64)
    for i in reversed(range(length)):
        later_B = r_BS[:, i] + gamma * later_B
        expected_BS[:, i] = later_B
    torch.testing.assert_close(
        discounted_suffix_sum(r_BS, gamma), expected_BS, rtol=1e-12, atol=1e-12
    )
    # the argument itself is left as it was
    assert torch.equal(r_BS[:, -1], discounted_suffix_sum(r_BS, gamma)[:, -1])


_loop = reference("ema").moving_average


@pytest.mark.parametrize("length", [1, 7, CHUNK, CHUNK + 1, 3 * CHUNK - 5])
def test_ema_scan_equals_a_loop_forward_and_backward(length):
    generator = torch.Generator().manual_seed(length)
    y_BTD = torch.randn(2, length, 3, generator=generator, dtype=torch.float64)
    p_BT = torch.rand(2, length, generator=generator, dtype=torch.float64)
    p_BT[:, 0] = 1  # H-Net's first token, and one that wipes the memory
    p_BT[0, length // 2] = 1
    p_BT[1, length // 2] = 0
    weight_BTD = torch.randn(y_BTD.shape, generator=generator, dtype=torch.float64)
    results = []
    for function in (_loop, ema_scan):
        y, p = y_BTD.clone().requires_grad_(), p_BT.clone().requires_grad_()
        z_BTD = function(y, p)
        (z_BTD * weight_BTD).sum().backward()
        results.append((z_BTD.detach(), y.grad, p.grad))
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)


def test_ema_scan_gradcheck():
    generator = torch.Generator().manual_seed(1)
    y_BTD = torch.randn(2, 5, 2, generator=generator, dtype=torch.float64, requires_grad=True)
    p_BT = torch.rand(2, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(ema_scan, (y_BTD, p_BT))


def test_ema_scan_in_float32_is_close_to_float64_over_a_long_row():
    generator = torch.Generator().manual_seed(2)
    y_BTD = torch.randn(1, 820, 4, generator=generator, dtype=torch.float64)
    p_BT = torch.rand(1, 820, generator=generator, dtype=torch.float64) * (1 - 2e-4) + 1e-4
    actual = ema_scan(y_BTD.float(), p_BT.float())
    assert actual.dtype == torch.float32
    torch.testing.assert_close(actual.double(), _loop(y_BTD, p_BT), rtol=0, atol=1e-5)


def test_ema_scan_under_autocast_stays_float32():
    y_BTD, p_BT = torch.randn(1, 9, 4), torch.rand(1, 9)
    plain = ema_scan(y_BTD, p_BT)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(ema_scan(y_BTD, p_BT), plain)
