"""FlexAttention and its hand-written block masks, as far as a CPU can tell: the forward pass.

The fused kernels and their gradients are checked by `rltok bench --device cuda`.
"""

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, create_mask

from rltok_core.config.schema import RuntimeConfig
from rltok_core.model import kernels
from rltok_core.model.attention import local_attention, rope_table, token_attention
from rltok_core.model.flex import BLOCK, masked_attention, row_mask, window_mask
from rltok_core.model.packing import Packing, bucket

CPU = torch.device("cpu")
pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")


def _qkv(*shape, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    # scores beyond the soft cap
    return (torch.randn(*shape, generator=generator, dtype=torch.float64) * 4).to(dtype)


def _seen(mask) -> torch.Tensor:
    """Blocks looked at, in part or whole."""
    return mask.to_dense()[0, 0] > 0


@pytest.mark.parametrize("window", [1, 64, 128, 129, 130, 300])
@pytest.mark.parametrize("length", [BLOCK, 5 * BLOCK, 3 * BLOCK + 17])
def test_window_mask_equals_the_one_that_torch_searches(window, length):
    ours = window_mask(length, window, CPU)
    theirs = create_block_mask(ours.mask_mod, None, None, length, length, device="cpu")
    assert torch.equal(_seen(ours), _seen(theirs))
    # whole blocks go unmasked: they may hide no pair; the others hide one, were they not cut short
    pairs_SS = create_mask(ours.mask_mod, None, None, length, length, device="cpu")[0, 0]
    for query, key in _seen(ours).nonzero().tolist():
        block = pairs_SS[query * BLOCK :, key * BLOCK :][:BLOCK, :BLOCK]
        whole = bool(_whole(ours)[query, key])
        assert whole == bool(block.all()) or (not whole and block.shape != (BLOCK, BLOCK))


def _whole(mask) -> torch.Tensor:
    count, index = mask.full_kv_num_blocks[0, 0], mask.full_kv_indices[0, 0]
    whole = torch.zeros(len(count), index.shape[-1], dtype=torch.bool)
    for row, n in enumerate(count.tolist()):
        whole[row, index[row, :n].long()] = True
    return whole


@pytest.mark.parametrize(
    "sizes", [[512], [1] * 256, [100, 300, 20, 1, 91], [128, 128, 256], [511, 1]]
)
def test_row_mask_equals_the_one_that_torch_searches(sizes):
    row_L = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    ours = row_mask(row_L)
    theirs = create_block_mask(ours.mask_mod, None, None, len(row_L), len(row_L), device="cpu")
    assert torch.equal(_seen(ours), _seen(theirs))
    assert torch.equal(_whole(ours), _whole(theirs))
    # keys grouped by query block and queries grouped by key block are the same pairs
    count, index = ours.q_num_blocks[0, 0], ours.q_indices[0, 0]
    partial = torch.zeros_like(_whole(ours))
    for key, n in enumerate(count.tolist()):
        partial[index[key, :n].long(), key] = True
    assert torch.equal(partial, _seen(ours) & ~_whole(ours))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("length", "window"), [(130, 4), (300, 64), (257, 129)])
def test_byte_attention_equals_blocks(dtype, length, window):
    qkv_BSX = _qkv(2, length, 3 * 2 * 16, dtype=dtype)
    table_Sd = rope_table(length, 16, 10_000.0, CPU)
    with torch.no_grad():
        expected = local_attention(qkv_BSX.double(), table_Sd, 2, window, 50.0)
        actual = masked_attention(qkv_BSX, table_Sd, 2, 50.0, window_mask(length, window, CPU))
    tolerance = 1e-9 if dtype == torch.float64 else 1e-4
    torch.testing.assert_close(actual.double(), expected, rtol=tolerance, atol=tolerance)


def test_packed_rows_equal_padded_ones():
    counts = [37, 1, 90, 64]
    valid_BT = torch.arange(90)[None, :] < torch.tensor(counts)[:, None]
    qkv_BTX = _qkv(4, 90, 3 * 2 * 16, dtype=torch.float64) * valid_BT[..., None]
    generator = torch.Generator().manual_seed(1)
    position_BT = torch.stack([torch.randperm(300, generator=generator)[:90] for _ in counts])
    table_BTd = rope_table(300, 16, 10_000.0, CPU)[position_BT.sort(1)[0] * valid_BT]
    packing = Packing(valid_BT, sum(counts))
    with torch.no_grad():
        expected = token_attention(qkv_BTX, table_BTd, 2, 50.0) * valid_BT[..., None]
        packed = packing.pack(qkv_BTX), packing.pack(table_BTd)
        mixed_1LD = masked_attention(*packed, 2, 50.0, packing.mask())
    assert mixed_1LD.shape == (1, 256, 32)
    torch.testing.assert_close(packing.unpack(mixed_1LD), expected, rtol=1e-9, atol=1e-9)


def test_forced_on_the_cpu_without_gradient_the_layer_says_the_same():
    qkv_BSX, table_Sd = _qkv(1, 200, 96, dtype=torch.float32), rope_table(200, 16, 1e4, CPU)
    expected = local_attention(qkv_BSX, table_Sd, 2, 8, 50.0)
    kernels.use(RuntimeConfig(kernels={"byte_attention": "flex"}))
    try:
        with torch.no_grad():
            actual = local_attention(qkv_BSX, table_Sd, 2, 8, 50.0)
    finally:
        kernels.use(RuntimeConfig())
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("length", [1, 16, 17, 100, 820, 4095, 104_960])
def test_bucket_adds_at_most_a_sixteenth(length):
    rounded = bucket(length)
    assert length <= rounded < length + max(16, length / 16 + 1)
    assert rounded % 16 == 0 and bucket(rounded) == rounded
    assert bucket(length, BLOCK) % BLOCK == 0


def test_there_are_few_buckets():
    assert len({bucket(n) for n in range(512, 1024)}) <= 17
