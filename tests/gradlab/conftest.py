"""A U-Net in float64 that is small enough to enumerate."""

from pathlib import Path

import pytest
import torch

from rltok_core.boundaries.registry import build_estimator
from rltok_core.config.experiment import load_estimator
from rltok_core.config.schema import EstimatorEntry, ModelConfig
from rltok_core.data.vocabulary import BOS, N_SPECIAL
from rltok_core.model.unet import UNet

CONFIGS = Path(__file__).parents[2] / "configs"
RATE = 0.3
NEUTRAL = {"lam_pi": 1.0, "lam_target": 0.0, "prior_weight": 0.0, "ratio_weight": 0.0}
MODEL = ModelConfig(size="t", d_model=8, n_heads=1, n_down=1, n_mid=1, n_up=1, window=2)


@pytest.fixture
def net_of():
    """name, changed params -> U-Net whose policy is far from its initial near-constant one."""

    def make(name, **changes):
        config = load_estimator(EstimatorEntry(name=name), CONFIGS)
        over = {k: v for k, v in NEUTRAL.items() if k in config.params} | changes
        config = config.model_copy(update={"params": config.params | over})
        torch.manual_seed(1)
        model = UNet(MODEL, build_estimator(config, 8, RATE, 32), seed=0).double()
        with torch.no_grad():
            for parameter in model.estimator.parameters():
                parameter.mul_(2.0 if name == "pooling" else 6.0)
        return model

    return make


@pytest.fixture
def rows_of():
    """rows, positions -> ids_BS of random letters after bos."""

    def make(rows, positions):
        generator = torch.Generator().manual_seed(5)
        ids_BS = torch.randint(97, 101, (rows, positions), generator=generator) + N_SPECIAL
        ids_BS[:, 0] = BOS
        return ids_BS

    return make


@pytest.fixture
def columns_of():
    """model -> bool (P): the estimator's parameters."""

    def make(model):
        return torch.cat(
            [
                torch.full((p.numel(),), name.startswith("estimator."))
                for name, p in model.named_parameters()
            ]
        )

    return make
