"""Training of one run in its folder: go on from where it stopped, record, save, finish.

Run folder: config.yaml, manifest.json, metrics.jsonl, checkpoints/, lock; at the end final.pt and,
as the very last file, training.json. A run that met a value that isn't finite has failed.json.
"""

import dataclasses
import io
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import torch

from rltok_core.boundaries.registry import estimator_class
from rltok_core.config.experiment import read_run, write_run
from rltok_core.config.schema import RunConfig
from rltok_core.errors import EXIT_REQUEUE
from rltok_core.training import checkpoint
from rltok_core.training.files import write_json, write_whole
from rltok_core.training.inputs import open_windows, read_data_hash
from rltok_core.training.lock import run_lock
from rltok_core.training.manifest import provenance
from rltok_core.training.metrics import MetricLog
from rltok_core.training.signals import StopSignals
from rltok_core.training.trainer import NotFinite, Trainer, set_up_device
from rltok_core.training.validation import validate

PROGRESS_SECONDS = 10.0


def say(message: str) -> None:
    print(f"rltok train: {message}", file=sys.stderr, flush=True)


def train(run: RunConfig, data: Path, out: Path, prepared: Path | None = None) -> int:
    """Train a run to its end, or go on with it.

    Args:
        run: the resolved configuration.
        data: a data folder (`rltok data build`).
        out: the run folder.
        prepared: what the estimator needs beforehand (`rltok prepare`), if it does.

    Returns:
        0 when the run is complete, EXIT_REQUEUE when a signal asked it to stop and it saved.

    Raises:
        UserError: wrong input, no GPU where one is asked for, full disk, a folder that belongs to
            another configuration or process (EXIT_LOCKED), a value that isn't finite
            (EXIT_NOT_FINITE).
    """
    set_up_device(run)
    data_hash = read_data_hash(run, data)
    cls = estimator_class(run.estimator)
    windows = {
        split: open_windows(run, cls, split, data, prepared) for split in ("train", "validation")
    }
    out.mkdir(parents=True, exist_ok=True)
    with run_lock(out):
        if (out / "config.yaml").is_file():
            found = read_run(out / "config.yaml")
            checkpoint.require_same_run(found.model_dump(mode="json"), found.hash, run, out)
        if _complete(out, run, data_hash):
            say(f"{out} is complete already; nothing to do")
            return 0
        with StopSignals() as stop:
            return _Session(run, data_hash, out, windows).go(stop)


def _complete(out: Path, run: RunConfig, data_hash: str) -> bool:
    if not ((out / "final.pt").is_file() and (out / "training.json").is_file()):
        return False
    record = json.loads((out / "training.json").read_text(encoding="utf-8"))
    return record["run_hash"] == run.hash and record["data_hash"] == data_hash


class _Session:
    """One process's work on a run folder that it holds the lock of."""

    def __init__(self, run: RunConfig, data_hash: str, out: Path, windows: dict):
        self.run, self.data_hash, self.out = run, data_hash, out
        self.validation = windows["validation"]
        self.identity = {
            "config": run.model_dump(mode="json"),
            "run_hash": run.hash,
            "data_hash": data_hash,
        }
        self.folder = out / "checkpoints"
        saved = checkpoint.load_newest(self.folder, run, data_hash)
        self.trainer = Trainer(run, windows["train"])
        self.saved_step = None
        if saved is not None:
            self.trainer.restore(saved)
            self.saved_step = self.progress.step
            self.progress.resumed_from.append(self.progress.step)
            say(f"going on from step {self.progress.step} of {run.training.steps}")
        self.seconds_before = self.progress.seconds
        self.began = time.monotonic()
        self.manifest = provenance(run, data_hash)
        (out / "failed.json").unlink(missing_ok=True)
        write_run(run, out / "config.yaml")
        write_json(out / "manifest.json", self.manifest)
        self.metrics = MetricLog(out / "metrics.jsonl", self.progress.step)

    @property
    def progress(self):
        return self.trainer.progress

    def go(self, stop: StopSignals) -> int:
        """The loop over steps; see train()."""
        steps, runtime = self.run.training.steps, self.run.runtime
        validate_every = self.run.training.validate_every
        self.shown = (self.began, self.progress.step, self.progress.bytes)
        while self.progress.step < steps:
            try:
                seen = self.trainer.step()
            except NotFinite as error:
                failed = {"status": "failed", "reason": str(error), **error.details}
                write_json(self.out / "failed.json", failed)
                raise
            step, last = self.progress.step, self.progress.step == steps
            self._show(seen)
            if last or step % runtime.log_every == 0:
                self._log(seen)
            if last or (validate_every and step % validate_every == 0):
                self._validate(seen["target_rate"])
            if last or stop.asked or step % runtime.checkpoint_every == 0:
                self._save()
            if stop.asked and not last:
                say(f"{stop.asked}: saved at step {step}; run the same command to go on")
                return EXIT_REQUEUE
        self._finish()
        return 0

    def _clock(self) -> float:
        self.progress.seconds = self.seconds_before + time.monotonic() - self.began
        return round(self.progress.seconds, 3)

    def _counts(self) -> dict[str, Any]:
        progress = self.progress
        return {"step": progress.step, "bytes": progress.bytes, "flops": progress.flops_paper}

    def _log(self, seen: dict[str, Any]) -> None:
        """A train line: means over the steps since the last one, what is named last of this one."""
        sums = self.trainer.tally.state()
        line = {
            "kind": "train",
            **self._counts(),
            **self.trainer.tally.line(),
            "target_rate": seen["target_rate"],
            "lr": seen["lr"],
            "grad_norm": seen["grad_norm"],
            "seconds": self._clock(),
        }
        if self.run.runtime.log_every == 1:
            line |= {"samples": seen["samples"], "target_bytes": int(sums["bytes"])}
            line |= {"loss_sum": sums["nats"]}
        self.metrics.append(line)
        self.trainer.tally.sums.clear()
        if not self.run.model.n_mid:
            return  # without a token level there is no rate to speak of
        ratio = self.trainer.watch.collapsed(self.progress.step)
        if ratio is not None and not self.progress.rate_collapsed:
            self.progress.rate_collapsed = True
            say(
                f"warning: the boundary rate has collapsed: {ratio:.3g} x its target "
                f"over the last {len(self.trainer.watch.ratio)} steps (step {self.progress.step})"
            )

    def _validate(self, target_rate: float) -> None:
        result = validate(self.trainer.model, self.validation, self.run, target_rate)
        self.progress.validation_bpb = result["bpb"]
        line = {"kind": "validation", **self._counts(), **result, "target_rate": target_rate}
        self.metrics.append(line | {"seconds": self._clock()})

    def _save(self) -> None:
        if self.saved_step == self.progress.step:
            return
        self._clock()
        self._measure_memory()
        self.metrics.sync()
        state = self.identity | self.trainer.state()
        keep = self.run.runtime.keep_checkpoints
        checkpoint.save(self.folder, self.progress.step, state, keep)
        self.saved_step = self.progress.step

    def _measure_memory(self) -> None:
        if self.run.runtime.device == "cuda":
            peak = torch.cuda.max_memory_allocated()
        else:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        self.progress.peak_memory_bytes = max(self.progress.peak_memory_bytes, peak)

    def _show(self, seen: dict[str, Any]) -> None:
        """A progress line on stderr about every ten seconds."""
        now = time.monotonic()
        then, step, n_bytes = self.shown
        if now - then < PROGRESS_SECONDS:
            return
        left = self.run.training.steps - self.progress.step
        minutes = (now - then) / (self.progress.step - step) * left / 60
        line = self.trainer.tally.line()
        say(
            f"step {self.progress.step}/{self.run.training.steps}  bpb {line['bpb']:.3f}  "
            f"rate {line['boundary_rate']:.3f} (target {seen['target_rate']:.3f})  "
            f"{(self.progress.bytes - n_bytes) / (now - then) / 1000:.1f} kB/s  "
            f"{minutes:.1f} min left"
        )
        self.shown = (now, self.progress.step, self.progress.bytes)

    def _finish(self) -> None:
        """final.pt, then training.json: with both in place the run is complete."""
        progress, model = self.progress, self.trainer.model
        self._measure_memory()
        buffer = io.BytesIO()
        step = {"step": progress.step}
        torch.save({"model": model.state_dict(), **self.identity, **step}, buffer)
        write_whole(self.out / "final.pt", buffer.getbuffer())
        done = dataclasses.asdict(progress)
        write_json(
            self.out / "training.json",
            {
                "status": "complete",
                "run_id": self.run.id,
                "run_hash": self.run.hash,
                "data_hash": self.data_hash,
                "label": self.run.estimator.label,
                "steps": done.pop("step"),
                **done,
                "bytes_per_second": progress.bytes / progress.seconds,
                "parameters": model.parameter_counts(),
                "manifest": self.manifest,
            },
        )
        self.metrics.close()
        say(
            f"{self.run.id}: {progress.step} steps, validation "
            f"{progress.validation_bpb:.3f} bits per byte, {progress.seconds:.0f} s"
        )
