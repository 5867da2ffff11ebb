"""A plug-in estimator for the tests on SLURM: the uniform rule, slowly, and with an appetite."""

import time

import torch

from rltok_core.boundaries.uniform import Uniform


class Slow(Uniform):
    """Uniform, whose every training step takes at least `seconds` and that holds `memory_mb`.

    The weights are those of any other values, and so of a run that nothing disturbs.
    """

    def __init__(self, params, d_model, target_rate, seq_len):
        params = dict(params)
        self.seconds, memory_mb = params.pop("seconds"), params.pop("memory_mb")
        super().__init__(params, d_model, target_rate, seq_len)
        self.ballast = torch.ones(memory_mb * 2**20, dtype=torch.uint8)  # ones: really held

    def propose(self, x_BSD, batch, target_rate):
        if self.training:
            time.sleep(self.seconds)
        return super().propose(x_BSD, batch, target_rate)
