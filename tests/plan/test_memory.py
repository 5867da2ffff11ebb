"""The memory estimate against measured training steps on the CPU, within 20 %."""

import gc
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from rltok_core.boundaries.registry import build_estimator
from rltok_core.boundaries.sizes import estimator_size
from rltok_core.config.experiment import load_estimator
from rltok_core.config.schema import EstimatorEntry, ModelConfig, TrainingConfig
from rltok_core.config.strict import read_yaml
from rltok_core.data.batch import Batch
from rltok_core.data.stream import RandomStream
from rltok_core.model.costs import network_weights
from rltok_core.model.unet import UNet
from rltok_core.plan.memory import peak_memory
from rltok_core.training.objective import objective
from rltok_core.training.precision import autocast, to_precision


class Case:
    """A network and a batch of `rows` full sequences, in `micro_batches` forward passes."""

    def __init__(self, size, estimator, rows, length, precision="float32", micro_batches=1, **more):
        values = read_yaml("configs/sizes.yaml")[size]
        self.model = ModelConfig(size=size, **values["model"] | more)
        own = {"seq_len": length, "precision": precision, "batch_size": rows * micro_batches}
        own |= {"steps": 100, "warmup_steps": 0}
        self.training = TrainingConfig(**values["training"] | own)
        self.kind = load_estimator(EstimatorEntry(name=estimator))
        self.rows, self.micro_batches = rows, micro_batches
        self.given = (self.model.d_model, self.training.target_rate, length)

    def planned(self) -> int:
        size = estimator_size(self.kind, *self.given)
        weights, rate = network_weights(self.model, size.weights), self.training.target_rate
        return peak_memory(self.model, self.training, weights, size, "cpu", self.rows, rate)

    def train(self) -> None:
        """Two whole steps: the second has AdamW's moments."""
        torch.manual_seed(0)
        training, length = self.training, self.training.seq_len
        model = UNet(self.model, build_estimator(self.kind, *self.given), 0)
        to_precision(model, training)
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        ids_BS = torch.randint(64, 320, (self.rows, length))
        stream = RandomStream(list(range(self.rows)))
        batch = Batch(ids_BS, torch.full((self.rows,), length), stream)
        for _ in range(2):
            optimizer.zero_grad(set_to_none=True)
            for _ in range(self.micro_batches):
                with autocast("cpu", training):
                    result = objective(model, batch, training, training.target_rate)
                result.loss.backward()
                del result
            optimizer.step()


def peak_allocated(train) -> int:
    """The most that PyTorch's allocator had handed out at once while `train` ran."""
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        train()
    events = [e for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"]
    total = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        total += event.nbytes()
        peak = max(peak, total)
    return peak


CASES = {
    "loops": Case("laptop_text", "score_function_w1", 16, 256),
    "micro batches": Case("laptop_text", "score_function", 4, 256, micro_batches=2),
    "wide window": Case("laptop_text", "uniform", 2, 512, window=64),
    "bf16": Case("laptop_text", "uniform", 2, 256, "bf16", window=64),
    "pure bf16": Case("laptop_text", "uniform", 2, 256, "bf16_pure"),
    "H-Net": Case("laptop_text", "hnet", 4, 256),
    "pooling": Case("laptop_text", "pooling", 4, 256),
    "draws": Case("laptop_text", "rloo", 4, 256),
    "20M": Case("20M", "score_function", 1, 1024),
    "20M, half the length": Case("20M", "score_function", 1, 512),
}


@pytest.mark.parametrize("name", CASES)
def test_the_estimate_is_within_a_fifth_of_a_measured_step(name):
    measured, planned = peak_allocated(CASES[name].train), CASES[name].planned()
    print(f"{name}: measured {measured / 1e6:.1f} MB, planned {planned / 1e6:.1f} MB")
    assert planned == pytest.approx(measured, rel=0.2)


GROWTH = """
import sys
sys.path.insert(0, sys.argv[1])
import test_memory
test_memory.Case("laptop_text", "score_function", 1, 16).train()  # what any first use loads
before = test_memory.resident()
test_memory.CASES["20M"].train()
print(test_memory.resident() - before)
"""


def resident() -> int:
    """The most that this process has held, bytes. Not ru_maxrss: exec hands on the parent's."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)[1]) * 1024


def test_so_is_the_growth_of_a_fresh_process():
    here = str(__file__).rpartition("/")[0]
    done = subprocess.run(
        [sys.executable, "-c", GROWTH, here], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    measured, planned = int(done.stdout.split()[-1]), CASES["20M"].planned()
    print(f"process: measured {measured / 1e6:.1f} MB, planned {planned / 1e6:.1f} MB")
    assert planned == pytest.approx(measured, rel=0.2)
