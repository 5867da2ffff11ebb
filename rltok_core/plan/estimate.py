"""What each run of an experiment will cost, from its configuration alone; no torch, no data.

The one place for planned FLOPs: `rltok plan` prints it, the workflow takes its time limits and
memory requests from it. Rows are taken to be full and boundaries to come at the target rate (at the
curriculum's where there is one). Training alone: validation and evaluation come on top.
"""

import glob
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rltok_core.boundaries.sizes import Size, estimator_size
from rltok_core.config.schema import DataConfig, RunConfig
from rltok_core.model.costs import (
    Flops,
    Weights,
    counted_flops,
    network_weights,
    paper_flops,
    window_pairs,
)
from rltok_core.plan.devices import Device
from rltok_core.plan.memory import peak_memory, state_bytes, weight_bytes
from rltok_core.training import schedule


@dataclass(frozen=True)
class Cost:
    """One run's.

    Attributes:
        run: its configuration.
        micro_batch: sequences of one forward pass; by default the configuration's.
    """

    run: RunConfig
    micro_batch: int | None = None

    @cached_property
    def size(self) -> Size:
        run = self.run
        given = (run.model.d_model, run.training.target_rate, run.training.seq_len)
        return estimator_size(run.estimator, *given)

    @property
    def weights(self) -> Weights:
        return network_weights(self.run.model, self.size.weights)

    @cached_property
    def rates(self) -> dict[float, int]:
        """The boundary rates that training asks for: {rate: for how many steps}."""
        training = self.run.training
        if not schedule.curriculum_ends(training, self.size.learned):
            return {training.target_rate: training.steps}
        found: dict[float, int] = {}
        for step in range(training.steps):
            rate = schedule.target_rate(step, training, self.size.learned)
            found[rate] = found.get(rate, 0) + 1
        return found

    @property
    def bytes(self) -> int:
        """Bytes predicted in all: a sequence's first position is bos."""
        training = self.run.training
        return training.steps * training.batch_size * (training.seq_len - 1)

    @cached_property
    def flops_paper(self) -> Flops:
        """By the paper's convention."""
        training = self.run.training
        shape = (training.batch_size, training.seq_len)
        each = [
            (steps, paper_flops(self.weights, self.run.model, *shape, self._tokens(rate), self._k))
            for rate, steps in self.rates.items()
        ]
        return _total(each)

    @cached_property
    def flops_counted(self) -> Flops:
        """What the mathematics needs, attention included: what a utilisation is a share of."""
        model, training, draws = self.run.model, self.run.training, self._k
        rows, length = training.batch_size, training.seq_len
        each = []
        for rate, steps in self.rates.items():
            tokens = self._tokens(rate)
            step = counted_flops(
                self.weights,
                model,
                positions=rows * length,
                byte_pairs=rows * window_pairs(length, model.window),
                tokens=draws * rows * tokens,
                token_pairs=draws * rows * tokens * (tokens + 1) / 2,
                samples=draws,
            )
            each.append((steps, step))
        return _total(each)

    @property
    def _k(self) -> int:
        return self.size.samples

    def _tokens(self, rate: float) -> float:
        return rate * self.run.training.seq_len if self.run.model.n_mid else 0

    def gpu_hours(self, device: Device, utilisation: float) -> float:
        """Device hours, whatever the number of devices."""
        return self.flops_counted.total / (device.peak * utilisation) / 3600

    @property
    def rows(self) -> int:
        """Sequences of one forward pass."""
        training, asked = self.run.training, self.micro_batch or self.run.runtime.micro_batch
        return min(asked or training.batch_size, training.batch_size)

    @property
    def memory(self) -> int:
        """Peak memory of a step in bytes, tensors alone (memory.py)."""
        run = self.run
        return peak_memory(
            run.model,
            run.training,
            self.weights,
            self.size,
            run.runtime.device,
            self.rows,
            max(self.rates),
        )

    @property
    def disk(self) -> int:
        """Bytes of a finished run's folder: the checkpoints that are kept, and final.pt. While one
        is written there is one checkpoint more."""
        precision = self.run.training.precision
        kept = min(
            self.run.runtime.keep_checkpoints,
            -(-self.run.training.steps // self.run.runtime.checkpoint_every),
        )
        total = self.weights.total
        return kept * state_bytes(total, precision) + weight_bytes(precision) * total


def _total(each: list[tuple[int, Flops]]) -> Flops:
    return Flops(*(round(sum(n * flops[part] for n, flops in each)) for part in (0, 1)))


def store_bytes(data: DataConfig) -> tuple[int, str] | None:
    """(bytes of a corpus's store, "about" or "at least" or "at most"); None where only reading the
    source would tell."""
    source = data.source
    if source.kind == "planted":
        return 2 * source.documents * source.document_bytes, "about"  # the truth: a byte a byte
    if source.kind == "files":
        paths = [*source.paths, *source.validation_paths, *source.test_paths]
        found = [Path(name) for pattern in paths for name in glob.glob(pattern, recursive=True)]
        return (sum(path.stat().st_size for path in found), "at most") if found else None
    if source.max_bytes:
        return source.max_bytes, "about"
    if source.max_documents:
        return source.max_documents * max(data.min_bytes, 1), "at least"
    return None
