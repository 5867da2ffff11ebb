"""What is timed: the paper's network on random bytes, one training step at a time.

Speed doesn't depend on what the bytes say, only on how many there are and how many boundaries:
before training the policy draws them at the target rate.

Shapes: B rows, S positions.
"""

from pathlib import Path

import torch

from rltok_core.boundaries.score_function import ScoreFunction
from rltok_core.config.schema import ModelConfig, TrainingConfig
from rltok_core.config.strict import read_yaml
from rltok_core.data.batch import Batch
from rltok_core.data.stream import RandomStream, stream_key
from rltok_core.data.vocabulary import BOS, N_BYTES, N_SPECIAL
from rltok_core.model.unet import UNet
from rltok_core.training.objective import objective
from rltok_core.training.precision import autocast

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
RATE = 0.2


def sizes() -> dict[str, dict]:
    """configs/sizes.yaml of the checkout."""
    return read_yaml(CONFIGS / "sizes.yaml")


def network(size: str, positions: int, device: str, **changes) -> UNet:
    """A size of the paper with the paper's policy (w = 8); `changes` of its model keys."""
    config = ModelConfig(size=size, **sizes()[size]["model"] | changes)
    params = read_yaml(CONFIGS / "estimators" / "score_function.yaml")["params"]
    torch.manual_seed(0)  # the estimator's own weights
    estimator = ScoreFunction(params, config.d_model, RATE, positions)
    return UNet(config, estimator, seed=0).to(device)


def random_batch(rows: int, positions: int, device: str) -> Batch:
    """Full rows of random bytes."""
    generator = torch.Generator().manual_seed(rows * positions)
    ids_BS = torch.randint(N_BYTES, (rows, positions), generator=generator) + N_SPECIAL
    ids_BS[:, 0] = BOS
    length_B = torch.full((rows,), positions)
    keys = [stream_key("bench", row) for row in range(rows)]
    return Batch(ids_BS.to(device), length_B.to(device), RandomStream(keys, device))


class Step:
    """A training step: forward, loss, backward, clipping, AdamW.

    Args:
        precision: "bf16" (autocast) or "float32", as in a run's configuration.
        fused: AdamW in one kernel, as in training; the reference takes PyTorch's default.
    """

    def __init__(self, model: UNet, batch: Batch, precision: str, fused: bool = True):
        self.model, self.batch = model, batch
        self.config = TrainingConfig(steps=1, lr=1e-3, precision=precision, target_rate=RATE)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=fused)

    def autocast(self):
        return autocast(self.batch.ids_BS.device.type, self.config)

    def gradient(self):
        """Forward and backward; returns the objective."""
        self.optimizer.zero_grad(set_to_none=True)
        with self.autocast():
            result = objective(self.model, self.batch, self.config, RATE)
        result.loss.backward()
        return result

    def update(self) -> None:
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
        self.optimizer.step()

    def __call__(self):
        result = self.gradient()
        self.update()
        return result
