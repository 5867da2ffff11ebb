"""Packing of ragged rows: a permutation of the tokens, with its gradient."""

import pytest
import torch

from rltok_core.model.packing import BLOCK, Packing


@pytest.mark.parametrize("counts", [[3, 0, 5, 1], [BLOCK], [64, 64], [1], [0, 2]])
def test_pack_lists_every_token_in_order_and_unpack_puts_it_back(counts):
    longest = max(counts)
    valid_BT = torch.arange(longest)[None, :] < torch.tensor(counts)[:, None]
    generator = torch.Generator().manual_seed(0)
    x_BTD = torch.randn(len(counts), longest, 3, generator=generator, dtype=torch.float64)
    x_BTD = (x_BTD * valid_BT[..., None]).requires_grad_()
    packing = Packing(valid_BT, sum(counts))
    packed_1LD = packing.pack(x_BTD)
    assert packed_1LD.shape == (1, BLOCK, 3)
    assert torch.equal(packed_1LD[0, : sum(counts)], x_BTD[valid_BT])
    rows = [row for row, n in enumerate(counts) for _ in range(n)]
    assert packing.row_L.tolist() == rows + [len(counts)] * (BLOCK - sum(counts))
    back_BTD = packing.unpack(packed_1LD * 2)
    torch.testing.assert_close(back_BTD, 2 * x_BTD.detach() * valid_BT[..., None])
    weight_BTD = torch.randn(x_BTD.shape, generator=generator, dtype=torch.float64)
    (back_BTD * weight_BTD).sum().backward()
    torch.testing.assert_close(x_BTD.grad, 2 * weight_BTD * valid_BT[..., None])
