"""A plug-in estimator for the tests: the uniform rule, in a process that is killed on the way."""

import os
import signal
from pathlib import Path

import torch

from rltok_core.boundaries.uniform import Uniform


class KillTwice(Uniform):
    """Kills its own process in the middle of chosen steps, each of them once.

    Params:
        at: the steps; folder: where a file a step says that it has happened.
    """

    def __init__(self, params, d_model, target_rate, seq_len):
        params = dict(params)
        self_at, folder = params.pop("at"), Path(params.pop("folder"))
        super().__init__(params, d_model, target_rate, seq_len)
        self.at, self.folder = self_at, folder
        # saved with the weights, so that a process that goes on knows its step
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    def propose(self, x_BSD, batch, target_rate):
        if self.training:
            self.step += 1
            done = self.folder / f"killed_at_{int(self.step)}"
            if int(self.step) in self.at and not done.exists():
                done.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return super().propose(x_BSD, batch, target_rate)
