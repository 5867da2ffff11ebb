"""FLOPs against the paper's figure and against pair-by-pair counting."""

from pathlib import Path

import pytest
import torch
import yaml

from rltok_core.boundaries.contract import Estimator, fixed_proposal
from rltok_core.config.schema import ModelConfig
from rltok_core.data.batch import Batch
from rltok_core.data.stream import RandomStream
from rltok_core.model.flops import (
    counted_flops,
    paper_flops,
    row_tokens,
    step_flops,
    window_pairs,
)
from rltok_core.model.unet import UNet

SIZES = yaml.safe_load((Path(__file__).parents[2] / "configs" / "sizes.yaml").read_text())


class EveryThird(Estimator):
    def propose(self, x_BSD, batch, target_rate):
        index_S = torch.arange(batch.ids_BS.shape[1])
        return fixed_proposal((index_S % 3 == 0).expand_as(batch.ids_BS), batch)


def test_147M_at_rate_a_fifth_costs_what_the_paper_says():
    with torch.device("meta"):
        model = UNet(
            ModelConfig(size="147M", **SIZES["147M"]["model"]), Estimator({}, 768, 0.2, 4096), 0
        )
    per_byte = paper_flops(model, 128, 4096, 819) / (128 * 4096)
    assert per_byte == pytest.approx(0.34e9, rel=0.01)
    assert per_byte * 6.0e9 == pytest.approx(2.0e18, rel=0.02)


@pytest.mark.parametrize("window", [1, 4, 64])
def test_window_pairs_equals_counting(window):
    lengths = [1, 3, 4, 5, 64, 100]
    expected = sum(min(i + 1, window) for n in lengths for i in range(n))
    assert window_pairs(torch.tensor(lengths), window) == expected


def test_counted_flops_by_hand():
    config = ModelConfig(size="t", d_model=8, n_heads=2, n_down=1, n_mid=2, n_up=1, window=4)
    model = UNet(config, Estimator({}, 8, 0.2, 16), 0)
    byte_layer, mid_layer = 7 * 64 + 32, 16 * 64 + 32
    weights = 6 * (10 * (2 * byte_layer + 2 * 256 * 8) + 3 * 2 * mid_layer)
    pairs = 2 * (1 + 2 + 3 + 4 * 7) + 2 * (1 + 2 + 3)
    # a pair: q.k and weight.v, a multiplication and an addition a channel, three times
    assert counted_flops(model, torch.tensor([10]), torch.tensor([3])) == weights + pairs * 12 * 8


@pytest.mark.parametrize("n_mid", [0, 2])
def test_step_flops_counts_real_tokens_and_the_papers_longest(n_mid):
    config = ModelConfig(size="t", d_model=8, n_heads=2, n_down=1, n_mid=n_mid, n_up=1, window=4)
    model = UNet(config, EveryThird({}, 8, 0.3, 16), 0)
    length_B = torch.tensor([10, 5])
    batch = Batch(torch.full((2, 10), 70), length_B, RandomStream([0, 1]))
    flops = step_flops(model, batch, row_tokens(model(batch, 0.3)))
    tokens_B = torch.tensor([4, 3]) if n_mid else torch.tensor([0, 0])
    assert flops.paper == paper_flops(model, 2, 10, int(tokens_B.max()))
    assert flops.counted == counted_flops(model, length_B, tokens_B)


def test_draws_share_the_down_layers_and_the_early_head():
    config = ModelConfig(size="t", d_model=8, n_heads=2, n_down=1, n_mid=2, n_up=3, window=4)
    model = UNet(config, EveryThird({}, 8, 0.3, 16), 0)
    batch = Batch(torch.full((2, 10), 70), torch.tensor([10, 5]), RandomStream([0, 1]))
    one = step_flops(model, batch, row_tokens(model(batch, 0.3)))
    three = step_flops(model, batch, row_tokens(model(batch, 0.3, samples=3)))
    down = 7 * 64 + 32
    assert 3 * one.paper - three.paper == 2 * 6 * 2 * 10 * (down + 320 * 8)
    pairs = (1 + 2 + 3 + 4 * 7) + (1 + 2 + 3 + 4 * 2)
    shared = 6 * 15 * (down + 256 * 8) + 12 * 8 * pairs
    assert 3 * one.counted - three.counted == 2 * shared
