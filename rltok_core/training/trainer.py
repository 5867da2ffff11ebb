"""One run in memory: model, optimiser, data and the optimiser step.

Nothing but the step number decides what comes next (sample ids, random streams, learning rate,
target rate), so a run goes on from a checkpoint as if it had never stopped.

Shapes: B rows, S positions.
"""

import dataclasses
import math
import os
from typing import Any

import torch

from rltok_core.boundaries.registry import build_estimator
from rltok_core.config.schema import RunConfig
from rltok_core.data.batch import Batch
from rltok_core.data.batches import Windows, training_indices
from rltok_core.data.stream import stream_key
from rltok_core.errors import EXIT_NOT_FINITE, UserError
from rltok_core.model.flops import step_flops
from rltok_core.model.unet import UNet
from rltok_core.training import schedule
from rltok_core.training.objective import boundary_counts, objective, whitespace_counts
from rltok_core.training.precision import autocast, to_precision
from rltok_core.training.watch import RateWatch, Tally


@dataclasses.dataclass
class Progress:
    """What a run has behind it; travels in the checkpoint.

    Attributes:
        step: optimiser steps done.
        bytes: target bytes trained on.
        flops_paper, flops_counted: training FLOPs so far (model/flops.py).
        seconds: wall time, over all resumes.
        rate_collapsed: the boundary rate was out of bounds at some log line (promise 5).
        validation_bpb: of the newest validation.
        resumed_from: the step of every resume.
        peak_memory_bytes: the largest that any of the run's processes has seen.
    """

    step: int = 0
    bytes: int = 0
    flops_paper: int = 0
    flops_counted: int = 0
    seconds: float = 0.0
    rate_collapsed: bool = False
    validation_bpb: float | None = None
    resumed_from: list[int] = dataclasses.field(default_factory=list)
    peak_memory_bytes: int = 0


class NotFinite(UserError):
    """A loss or a gradient that isn't finite, found before the weights were touched.

    Attributes:
        details: step, terms, parameters, documents, for failed.json (strict JSON).
    """

    def __init__(self, details: dict[str, Any]):
        self.details = details
        terms = ", ".join(f"{name} {value}" for name, value in details["terms"].items())
        documents = ", ".join(f"{name} @{start}" for name, start in details["documents"])
        parameters = ", ".join(details["parameters"]) or "none"
        super().__init__(
            f"step {details['step']}: not finite; stopped before the optimiser step. "
            f"Loss terms: {terms}. Parameters with such gradients: {parameters}. "
            f"Documents (@ first byte): {documents}",
            EXIT_NOT_FINITE,
        )


def set_up_device(run: RunConfig) -> None:
    """Threads, determinism, and the global random state (an estimator's own initial weights).

    Raises:
        UserError: a GPU is asked for and there is none.
    """
    if run.runtime.device == "cuda":
        if not torch.cuda.is_available():
            raise UserError(
                "runtime.device is cuda, but torch sees no GPU here; set runtime.device: cpu"
            )
        # cuBLAS is deterministic only with a fixed workspace
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(run.runtime.threads)
    torch.use_deterministic_algorithms(True, warn_only=True)
    # else every torch.empty is filled with NaN first, for nothing
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.manual_seed(run.seed)


class Trainer:
    """One run: build it, restore() where there is a checkpoint, then step() by step().

    Args:
        run: the resolved configuration.
        windows: of the training split.
    """

    def __init__(self, run: RunConfig, windows: Windows):
        self.run, self.config, self.windows = run, run.training, windows
        self.device = run.runtime.device
        estimator = build_estimator(
            run.estimator, run.model.d_model, self.config.target_rate, self.config.seq_len
        )
        self.learned = estimator.learned
        self.model = UNet(run.model, estimator, run.seed).to(self.device)
        to_precision(self.model, self.config)
        groups = [
            {"params": parameters, "multiple": self.config.lr_multiples.get(name, 1.0)}
            for name, parameters in self.model.parameter_groups().items()
            if parameters
        ]
        self.optimizer = torch.optim.AdamW(
            groups,
            lr=self.config.lr,
            betas=self.config.betas,
            weight_decay=self.config.weight_decay,
            fused=True,
        )
        self.progress = Progress()
        self.tally = Tally()
        self.watch = RateWatch(self.config.steps, self.device)

    def state(self) -> dict[str, Any]:
        """All that a resume needs, as tensors and plain values."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "random": torch.get_rng_state(),
            "random_cuda": torch.cuda.get_rng_state() if self.device == "cuda" else None,
            "progress": dataclasses.asdict(self.progress),
            "tally": self.tally.state(),
            "watch": self.watch.ratio,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what state() returned."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])
        if state["random_cuda"] is not None and self.device == "cuda":
            torch.cuda.set_rng_state(state["random_cuda"])
        self.progress = Progress(**state["progress"])
        self.tally.sums = dict(state["tally"])
        self.watch.ratio.copy_(state["watch"])

    def batches(self, step: int) -> tuple[list[int], list[Batch]]:
        """The sample ids of a step and its micro-batches, functions of seed and step alone."""
        size = self.config.batch_size
        rows = training_indices(len(self.windows), size, step, self.run.seed)
        keys = [stream_key(self.run.seed, "train", step, row) for row in range(size)]
        micro = self.run.runtime.micro_batch or size
        progress = step / self.config.steps
        return rows, [
            self.windows.batch(rows[a : a + micro], keys[a : a + micro], device=self.device).at(
                progress
            )
            for a in range(0, size, micro)
        ]

    def gradient(self, batches: list[Batch], target_rate: float) -> tuple[Tally, Tally]:
        """Leave the whole batch's gradient in .grad; micro-batches weigh by their target bytes.

        An estimator whose loss looks across rows (a batch baseline) sees one micro-batch at once.

        Returns:
            The sums of the step (loss, nats, nats_early, bytes, boundaries, positions, marked,
            whitespace) and the loss terms by name.
        """
        sizes = [int((batch.length_B - 1).sum()) for batch in batches]
        self.optimizer.zero_grad(set_to_none=True)
        sums, terms = Tally(), Tally()
        for batch, size in zip(batches, sizes, strict=True):
            share = size / sum(sizes)
            with autocast(self.device, self.config):
                result = objective(self.model, batch, self.config, target_rate)
            (result.loss * share).backward()
            boundary_BS = result.prediction.proposal.boundary_BS
            batch = result.prediction.batch  # the rows of every draw of the boundaries
            boundaries, positions = boundary_counts(batch, boundary_BS)
            marked, whitespace = whitespace_counts(batch, boundary_BS)
            flops = step_flops(self.model, batch, result.prediction)
            self.progress.flops_paper += flops.paper
            self.progress.flops_counted += flops.counted
            sums.add(
                loss=result.loss * share,
                nats=result.nats,
                nats_early=result.nats_early,
                bytes=size,
                boundaries=boundaries,
                positions=positions,
                marked=marked,
                whitespace=whitespace,
            )
            terms.add(**{name: value * share for name, value in result.terms.items()})
        return sums, terms

    def step(self) -> dict[str, Any]:
        """One optimiser step; its sums are added to the tally.

        Returns:
            What belongs to this step alone: samples, lr, target_rate, grad_norm.

        Raises:
            NotFinite: before the weights are touched.
        """
        done = self.progress.step
        target = schedule.target_rate(done, self.config, self.learned)
        lr = schedule.learning_rate(done, self.config)
        samples, batches = self.batches(done)
        sums, terms = self.gradient(batches, target)
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        norm = torch.nn.utils.get_total_norm([p.grad for p in parameters])
        grad_norm, loss = torch.stack([norm.double(), sums["loss"]]).tolist()
        if not (math.isfinite(grad_norm) and math.isfinite(loss)):
            raise self._not_finite(done + 1, batches, terms)
        torch.nn.utils.clip_grads_with_norm_(parameters, self.config.clip, norm)
        for group in self.optimizer.param_groups:
            group["lr"] = lr * group["multiple"]
        self.optimizer.step()

        realised = sums["boundaries"] / sums["positions"]
        self.watch.add(done, realised, target)
        controller = self.config.controller
        if (
            controller is not None
            and self.learned
            and done >= schedule.curriculum_ends(self.config, self.learned)
        ):
            bias = self.model.estimator.rate_bias
            schedule.control_rate(bias, controller, target, realised)
        self.tally.add(steps=1, **sums.sums, **{f"term {k}": v for k, v in terms.sums.items()})
        self.progress.step += 1
        self.progress.bytes += int(sums["bytes"])
        return {"samples": samples, "lr": lr, "target_rate": target, "grad_norm": grad_norm}

    def _not_finite(self, step: int, batches: list[Batch], terms: Tally) -> NotFinite:
        names = self.windows.store.names
        return NotFinite(
            {
                "step": step,
                "terms": {name: str(value) for name, value in terms.state().items()},
                "parameters": [
                    name
                    for name, p in self.model.named_parameters()
                    if p.grad is not None and not p.grad.isfinite().all()
                ],
                "documents": [
                    [names[document], start]
                    for batch in batches
                    for document, start in batch.documents
                ],
            }
        )
