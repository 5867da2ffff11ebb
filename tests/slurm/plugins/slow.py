"""A plug-in estimator for the tests on SLURM: the uniform rule, slowly, and with an appetite."""

import time
from pathlib import Path

import torch

from rltok_core.boundaries.uniform import Uniform


class Slow(Uniform):
    """Uniform, with weights that depend on none of its own parameters.

    Params:
        seconds: how long each training step takes at least, until the file `hurry` is there.
        hurry: its path.
        memory_mb: memory that the process holds.
    """

    def __init__(self, params, d_model, target_rate, seq_len):
        params = dict(params)
        self.seconds, self.hurry = params.pop("seconds"), Path(params.pop("hurry"))
        memory_mb = params.pop("memory_mb")
        super().__init__(params, d_model, target_rate, seq_len)
        self.ballast = torch.ones(memory_mb * 2**20, dtype=torch.uint8)  # ones: really held

    def propose(self, x_BSD, batch, target_rate):
        end = time.monotonic() + self.seconds
        while self.training and time.monotonic() < end and not self.hurry.exists():
            time.sleep(0.1)
        return super().propose(x_BSD, batch, target_rate)
