"""Parameter counts and initial weights against the closed form and PyTorch's defaults."""

from pathlib import Path

import pytest
import torch
import yaml
from torch import nn

from rltok_core.boundaries.contract import Estimator
from rltok_core.config.schema import ModelConfig
from rltok_core.data.vocabulary import VOCABULARY
from rltok_core.model.unet import UNet

SIZES = yaml.safe_load((Path(__file__).parents[2] / "configs" / "sizes.yaml").read_text())


def _config(size):
    return ModelConfig(size=size, **SIZES[size]["model"])


@pytest.mark.parametrize("size", SIZES)
def test_counts_equal_the_closed_form(size):
    config = _config(size)
    with torch.device("meta"):
        estimator = Estimator({}, config.d_model, 0.2, 4096)
        estimator.filter = nn.Linear(config.d_model, 8)
        model = UNet(config, estimator, 0)
    width = config.d_model
    expected = {
        "byte_layers": (config.n_down + config.n_up) * (7 * width**2 + 4 * width),
        "mid_layers": config.n_mid * (16 * width**2 + 4 * width),
        "embedding_and_heads": 3 * VOCABULARY * width,
        "policy": 8 * width + 8,
    }
    assert model.parameter_counts() == expected | {"total": sum(expected.values())}
    groups = model.parameter_groups()
    listed = [id(p) for group in groups.values() for p in group]
    assert len(listed) == len(set(listed)) and set(listed) == {id(p) for p in model.parameters()}


def test_the_paper_sizes_have_the_paper_names():
    for size, millions in (("147M", 147.0), ("90M", 90.4)):
        with torch.device("meta"):
            model = UNet(_config(size), Estimator({}, 768, 0.2, 4096), 0)
        assert round(model.parameter_counts()["total"] / 1e6, 1) == pytest.approx(millions, abs=0.1)


def test_initial_weights_are_seeded_and_have_pytorchs_distribution():
    config = _config("laptop_text")
    first, again, other = (UNet(config, Estimator({}, 64, 0.2, 256), seed) for seed in (3, 3, 4))
    torch.manual_seed(99)  # the global generator plays no part
    for name, value in first.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name
    assert not torch.equal(first.embedding.weight, other.embedding.weight)
    assert abs(float(first.embedding.weight.detach().std()) - 1) < 0.02
    for module in first.modules():
        if isinstance(module, nn.Linear):
            bound = module.in_features**-0.5
            top = float(module.weight.detach().abs().max())
            assert 0.98 * bound < top <= bound
            assert abs(float(module.weight.detach().std()) / (bound / 3**0.5) - 1) < 0.05
    assert torch.equal(first.early_head.weight, first.head.weight)
    assert first.early_head.weight.data_ptr() != first.head.weight.data_ptr()
    norms = [p for name, p in first.named_parameters() if p.dim() == 1]
    assert norms and all(torch.count_nonzero(p) == 0 for p in norms)
