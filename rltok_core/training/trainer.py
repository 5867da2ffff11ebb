"""One run in memory: model, optimiser, data and the optimiser step.

Nothing but the step number decides what comes next (sample ids, random streams, learning rate,
target rate), so a run goes on from a checkpoint as if it had never stopped.

Ranks: a step's rows are cut into micro-batches, and rank r computes the r-th, the (r + R)-th and so
on. What an estimator's loss averages over rows (the boundary statistics of L_target, batch-relative
centring) it averages over one micro-batch, so R ranks compute what one process does that is told
the same runtime.micro_batch. Gradients, sums and counts are totals over all ranks before anybody
looks at them, so every rank takes the same optimiser step and moves the same rate controller.

Shapes: B rows, S positions.
"""

import dataclasses
import math
import os
from typing import Any

import torch

from rltok_core.boundaries.registry import build_estimator
from rltok_core.config.schema import RunConfig
from rltok_core.data.ahead import Ahead
from rltok_core.data.batch import Batch
from rltok_core.data.batches import Windows, training_indices
from rltok_core.data.stream import stream_key
from rltok_core.errors import EXIT_NOT_FINITE, UserError
from rltok_core.model import kernels
from rltok_core.model.flops import row_tokens, step_flops
from rltok_core.model.unet import UNet
from rltok_core.training import schedule
from rltok_core.training.objective import boundary_counts, objective, whitespace_counts
from rltok_core.training.precision import autocast, to_precision
from rltok_core.training.ranks import Ranks
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
        layout: [step, ranks, rows of a micro-batch], a line where they begin to hold.
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
    layout: list[list[int]] = dataclasses.field(default_factory=list)
    peak_memory_bytes: int = 0


@dataclasses.dataclass(frozen=True)
class StepData:
    """What a rank computes in a step.

    Attributes:
        samples: the window of every row of the global batch.
        batches: this rank's micro-batches.
        sizes: target bytes of each of them.
        total: target bytes of the global batch.
    """

    samples: list[int]
    batches: list[Batch]
    sizes: list[int]
    total: int


def cuts(rows: int, micro_batch: int, ranks: int) -> list[range]:
    """The micro-batches of a global batch, in order: micro_batch rows each, or one a rank for 0.

    Raises:
        UserError: there are fewer than ranks.
    """
    if micro_batch:
        cut = [range(a, min(a + micro_batch, rows)) for a in range(0, rows, micro_batch)]
    else:
        cut = [range(rows * r // ranks, rows * (r + 1) // ranks) for r in range(ranks)]
    if len(cut) < ranks or not cut[0]:
        raise UserError(
            f"training.batch_size {rows} with runtime.micro_batch {micro_batch} is too little "
            f"for {ranks} ranks: each needs a micro-batch of its own"
        )
    return cut


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
    kernels.use(run.runtime)
    if run.runtime.compile:
        torch.use_deterministic_algorithms(True, warn_only=True)
    else:  # the same, without importing the compiler to tell it too: seconds in every process
        torch.set_deterministic_debug_mode("warn")
    # without this every torch.empty is filled with NaN first, for nothing
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.manual_seed(run.seed)


class Trainer:
    """One run: build it, restore() where there is a checkpoint, then step() by step().

    Args:
        run: the resolved configuration.
        windows: of the training split.
        ranks: who else computes it.
    """

    def __init__(self, run: RunConfig, windows: Windows, ranks: Ranks | None = None):
        self.run, self.config, self.windows = run, run.training, windows
        self.device, self.ranks = run.runtime.device, ranks or Ranks()
        self.cuts = cuts(self.config.batch_size, run.runtime.micro_batch, self.ranks.size)
        self._data = Ahead(self._to_come, self.config.steps)
        estimator = build_estimator(
            run.estimator, run.model.d_model, self.config.target_rate, self.config.seq_len
        )
        self.learned = estimator.learned
        self.model = UNet(run.model, estimator, run.seed).to(self.device)
        to_precision(self.model, self.config)
        self.model.activation_checkpointing = run.runtime.activation_checkpointing
        if run.runtime.compile:
            self.model.compile_layers()
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
        if not self.ranks.first:
            self._own_random(0)
        self.progress = Progress()
        self.tally = Tally()
        self.watch = RateWatch(self.config.steps, self.device)

    def _own_random(self, step: int) -> None:
        """Ranks begin with the same global random state, for the same first weights; not after."""
        torch.manual_seed(stream_key(self.run.seed, "rank", self.ranks.rank, step))

    def state(self) -> dict[str, Any]:
        """All that a resume needs, as tensors and plain values. Every rank must call it."""
        cuda = torch.cuda.get_rng_state() if self.device == "cuda" else None
        random = self.ranks.gather((torch.get_rng_state(), cuda))
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "random": random[0][0],
            "random_cuda": random[0][1],
            "random_others": [list(states) for states in random[1:]],
            "progress": dataclasses.asdict(self.progress),
            "tally": self.tally.state(),
            "watch": self.watch.ratio,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what state() returned, on this or another number of ranks."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        random = [[state["random"], state["random_cuda"]], *state.get("random_others", [])]
        if self.ranks.rank < len(random):
            host, cuda = random[self.ranks.rank]
            torch.set_rng_state(host)
            if cuda is not None and self.device == "cuda":
                torch.cuda.set_rng_state(cuda)
        else:
            self._own_random(state["progress"]["step"])
        self.progress = Progress(**state["progress"])
        self.tally.sums = dict(state["tally"])
        self.watch.ratio.copy_(state["watch"])

    def batches(self, step: int) -> StepData:
        """The data of a step in host memory: a function of seed, step and rank alone."""
        size = self.config.batch_size
        rows = training_indices(len(self.windows), size, step, self.run.seed)
        keys = [stream_key(self.run.seed, "train", step, row) for row in range(size)]
        mine = self.cuts[self.ranks.rank :: self.ranks.size]
        batches = [
            self.windows.batch([rows[i] for i in cut], [keys[i] for i in cut]).at(
                step / self.config.steps
            )
            for cut in mine
        ]
        return StepData(
            samples=rows,
            batches=batches,
            sizes=[int((batch.length_B - 1).sum()) for batch in batches],
            total=int(self.windows.places(rows)[2].sum()),
        )

    def _to_come(self, step: int) -> StepData:
        """batches(), ready for the device."""
        data = self.batches(step)
        if self.device == "cpu":
            return data
        return dataclasses.replace(data, batches=[batch.pinned() for batch in data.batches])

    def fingerprint(self) -> list[float]:
        """Numbers that are equal where all weights are: of every tensor, in float64."""
        values = [v.double() for v in self.model.state_dict().values() if v.is_floating_point()]
        return torch.stack([v.sum() for v in values] + [v.square().sum() for v in values]).tolist()

    def close(self) -> None:
        """End the thread that makes the data."""
        self._data.close()

    def gradient(self, data: StepData, target_rate: float) -> tuple[Tally, Tally]:
        """Leave the global batch's gradient in .grad; micro-batches weigh by their target bytes.

        An estimator whose loss looks across rows (a batch baseline) sees one micro-batch at once.

        Returns:
            The sums of the step over all ranks (loss, nats, nats_early, bytes, boundaries,
            positions, marked, whitespace) and the loss terms by name.
        """
        self.optimizer.zero_grad(set_to_none=True)
        sums, terms = Tally(), Tally()
        tokens = []
        for on_host, size in zip(data.batches, data.sizes, strict=True):
            share = size / data.total
            batch = on_host.to(self.device)
            with autocast(self.device, self.config):
                result = objective(self.model, batch, self.config, target_rate)
            (result.loss * share).backward()
            boundary_BS = result.prediction.proposal.boundary_BS
            batch = result.prediction.batch  # the rows of every draw of the boundaries
            boundaries, positions = boundary_counts(batch, boundary_BS)
            marked, whitespace = whitespace_counts(batch, boundary_BS)
            tokens.append(row_tokens(result.prediction))
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
        # to read a count waits for the device: only now, when every pass has been handed to it
        flops = [
            step_flops(self.model, batch, tokens_B.cpu())
            for batch, tokens_B in zip(data.batches, tokens, strict=True)
        ]
        flops_paper, flops_counted = self._total(
            sums, terms, sum(one.paper for one in flops), sum(one.counted for one in flops)
        )
        self.progress.flops_paper += flops_paper
        self.progress.flops_counted += flops_counted
        return sums, terms

    def _total(self, sums: Tally, terms: Tally, *counts: int) -> list[int]:
        """Gradients, sums and terms become totals over all ranks, in place; so do the counts.

        A weight that no micro-batch of any rank has reached keeps no gradient, as in one process:
        AdamW then leaves it alone.
        """
        if self.ranks.size == 1:
            return list(counts)
        weights = [p for p in self.model.parameters() if p.requires_grad]
        reached = [int(p.grad is not None) for p in weights]
        totals = self.ranks.total_counts([*counts, *reached])
        weights = [p for p, n in zip(weights, totals[len(counts) :], strict=True) if n]
        for p in weights:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
        self.ranks.total([p.grad for p in weights])
        for tally in (sums, terms):
            values = torch.stack(
                [
                    torch.as_tensor(value, dtype=torch.float64, device=self.device)
                    for value in tally.sums.values()
                ]
            )
            self.ranks.total([values])
            tally.sums = dict(zip(tally.sums, values.unbind(), strict=True))
        return totals[: len(counts)]

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
        data = self._data.get(done)
        sums, terms = self.gradient(data, target)
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        norm = torch.nn.utils.get_total_norm([p.grad for p in parameters])
        grad_norm, loss = torch.stack([norm.double(), sums["loss"]]).tolist()
        if not (math.isfinite(grad_norm) and math.isfinite(loss)):
            raise self._not_finite(done + 1, data.samples, terms)
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
        self.progress.bytes += data.total
        return {"samples": data.samples, "lr": lr, "target_rate": target, "grad_norm": grad_norm}

    def _not_finite(self, step: int, samples: list[int], terms: Tally) -> NotFinite:
        names = self.windows.store.names
        document_B, start_B, _ = self.windows.places(samples)
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
                    for document, start in zip(document_B.tolist(), start_B.tolist(), strict=True)
                ],
            }
        )
