"""Training of one run in its folder: go on from where it stopped, record, save, finish.

Run folder: config.yaml, manifest.json, metrics.jsonl, checkpoints/, lock; at the end final.pt and,
as the very last file, training.json. A run that met a value that isn't finite has failed.json.
Of several ranks the first writes all of it, and the others wait for it (docs/distributed.md).
"""

import dataclasses
import io
import json
import resource
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NoReturn

import torch

from rltok_core.boundaries.registry import estimator_class
from rltok_core.config.experiment import read_run, write_run
from rltok_core.config.schema import RunConfig
from rltok_core.errors import EXIT_REQUEUE, UserError
from rltok_core.files import remove_leftovers, write_json, write_whole
from rltok_core.training import checkpoint
from rltok_core.training.inputs import open_windows, read_data_hash
from rltok_core.training.lock import run_lock
from rltok_core.training.manifest import provenance
from rltok_core.training.metrics import MetricLog
from rltok_core.training.ranks import Ranks, join
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
    with join(run.runtime.device) as ranks, ExitStack() as held:

        def read() -> tuple[str, dict]:
            found = read_data_hash(run, data)
            cls, splits = estimator_class(run.estimator), ("train", "validation")
            return found, {s: open_windows(run, cls, s, data, prepared) for s in splits}

        def take() -> bool:
            """Whether the run is complete; if not, the folder is ours from here on."""
            out.mkdir(parents=True, exist_ok=True)
            held.enter_context(run_lock(out))
            if (out / "config.yaml").is_file():
                found = read_run(out / "config.yaml")
                checkpoint.require_same_run(found.model_dump(mode="json"), found.hash, run, out)
            return _complete(out, run, data_hash)

        data_hash, windows = ranks.each(read)
        if ranks.first_does(take):
            if ranks.first:
                say(f"{out} is complete already; nothing to do")
            return 0
        with StopSignals() as stop:
            session = _Session(run, data_hash, out, windows, ranks)
            try:
                return session.go(stop)
            finally:
                session.trainer.close()


def _complete(out: Path, run: RunConfig, data_hash: str) -> bool:
    if not ((out / "final.pt").is_file() and (out / "training.json").is_file()):
        return False
    record = json.loads((out / "training.json").read_text(encoding="utf-8"))
    return record["run_hash"] == run.hash and record["data_hash"] == data_hash


class _Session:
    """The ranks' work on a run folder that the first of them holds the lock of."""

    def __init__(self, run: RunConfig, data_hash: str, out: Path, windows: dict, ranks: Ranks):
        self.run, self.data_hash, self.out, self.ranks = run, data_hash, out, ranks
        self.validation = windows["validation"]
        self.identity = {
            "config": run.model_dump(mode="json"),
            "run_hash": run.hash,
            "data_hash": data_hash,
        }
        self.folder = out / "checkpoints"
        self.trainer = ranks.each(lambda: Trainer(run, windows["train"], ranks))
        self.saved_step = ranks.first_does(self._restore_newest)
        if self.saved_step is not None:
            ranks.each(self._follow)
            self.progress.resumed_from.append(self.saved_step)
            self.say(f"going on from step {self.saved_step} of {run.training.steps}")
        self._note_layout()
        self._require_equal_weights()
        self.seconds_before = self.progress.seconds
        self.began = time.monotonic()
        self.manifest = provenance(run, data_hash) | {"ranks": ranks.size}
        ranks.first_does(self._open)

    @property
    def progress(self):
        return self.trainer.progress

    def say(self, message: str) -> None:
        if self.ranks.first:
            say(message)

    def _restore_newest(self) -> int | None:
        """Go to the newest whole checkpoint, if there is one: its step."""
        remove_leftovers(self.out, self.folder)
        saved = checkpoint.load_newest(self.folder, self.run, self.data_hash)
        if saved is None:
            return None
        self.trainer.restore(saved)
        return self.progress.step

    def _follow(self) -> None:
        """Go where the first rank has gone."""
        if not self.ranks.first:
            self.trainer.restore(checkpoint.load(self.folder, self.saved_step))

    def _note_layout(self) -> None:
        """Record ranks and micro-batch rows where they begin to hold, and say what changed."""
        now = [self.ranks.size, max(map(len, self.trainer.cuts))]
        layout, step = self.progress.layout, self.progress.step
        if layout and layout[-1][1:] == now:
            return
        if layout:
            _, ranks, rows = layout[-1]
            effect = "sums are added in another order"
            if rows != now[1]:
                effect += "; what an estimator averages over rows, it averages over other rows"
            self.say(
                f"note: {ranks} ranks with micro-batches of {rows} rows up to step {step}, from "
                f"here {now[0]} with {now[1]}. The rows of each step stay the same; {effect}"
            )
        layout.append([step, *now])

    def _require_equal_weights(self) -> None:
        """Raises UserError where the ranks don't hold the same weights."""
        found = self.ranks.gather(self.trainer.fingerprint() if self.ranks.size > 1 else None)
        wrong = [rank for rank, one in enumerate(found) if one != found[0]]
        if wrong:
            raise UserError(
                f"step {self.progress.step}: ranks {wrong} hold other weights than rank 0. Do all "
                "nodes have the same software? Nothing was saved from this step"
            )

    def _open(self) -> None:
        """What a session writes before its first step."""
        (self.out / "failed.json").unlink(missing_ok=True)
        write_run(self.run, self.out / "config.yaml")
        write_json(self.out / "manifest.json", self.manifest)
        self.metrics = MetricLog(self.out / "metrics.jsonl", self.progress.step)

    def go(self, stop: StopSignals) -> int:
        """The loop over steps; see train()."""
        steps, runtime = self.run.training.steps, self.run.runtime
        validate_every = self.run.training.validate_every
        self.shown = (self.began, self.progress.step, self.progress.bytes)
        while self.progress.step < steps:
            try:
                seen = self.trainer.step()
            except NotFinite as error:
                self._fail(error)
            step, last = self.progress.step, self.progress.step == steps
            self._show(seen)
            if last or step % runtime.log_every == 0:
                self._log(seen)
            if last or (validate_every and step % validate_every == 0):
                self._validate(seen["target_rate"])
            asked = self._asked(stop)
            if last or asked or step % runtime.checkpoint_every == 0:
                self._save()
            if asked and not last:
                self.say(f"{asked}: saved at step {step}; run the same command to go on")
                return EXIT_REQUEUE
        self._measure_memory()
        self.ranks.first_does(self._finish)
        return 0

    def _asked(self, stop: StopSignals) -> str | None:
        """The signal that any rank has been sent: all stop after the same step."""
        if self.ranks.size == 1:
            return stop.asked
        names = [signal.name for signal in stop.SIGNALS]
        counts = self.ranks.total_counts([int(name == stop.asked) for name in names])
        return next((name for name, n in zip(names, counts, strict=True) if n), None)

    def _fail(self, error: NotFinite) -> NoReturn:
        """Every rank has met it; the first says so."""

        def write() -> None:
            failed = {"status": "failed", "reason": str(error), **error.details}
            write_json(self.out / "failed.json", failed)
            raise error

        self.ranks.first_does(write)

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
        self.trainer.tally.sums.clear()
        self.ranks.first_does(lambda: self.metrics.append(line))
        if not self.run.model.n_mid:
            return  # without a token level there is no rate to speak of
        ratio = self.trainer.watch.collapsed(self.progress.step)
        if ratio is not None and not self.progress.rate_collapsed:
            self.progress.rate_collapsed = True
            self.say(
                f"warning: the boundary rate has collapsed: {ratio:.3g} x its target "
                f"over the last {len(self.trainer.watch.ratio)} steps (step {self.progress.step})"
            )

    def _validate(self, target_rate: float) -> None:
        result = validate(self.trainer, self.validation, target_rate)
        self.progress.validation_bpb = result["bpb"]
        line = {"kind": "validation", **self._counts(), **result, "target_rate": target_rate}
        line |= {"seconds": self._clock()}
        self.ranks.first_does(lambda: self.metrics.append(line))

    def _save(self) -> None:
        if self.saved_step == self.progress.step:
            return
        self._clock()
        self._measure_memory()
        self._require_equal_weights()
        state = self.identity | self.trainer.state()
        keep = self.run.runtime.keep_checkpoints

        def write() -> None:
            self.metrics.sync()
            checkpoint.save(self.folder, self.progress.step, state, keep)

        self.ranks.first_does(write)
        self.saved_step = self.progress.step

    def _measure_memory(self) -> None:
        if self.run.runtime.device == "cuda":
            peak = torch.cuda.max_memory_allocated()
        else:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        peaks = self.ranks.gather(peak)
        self.progress.peak_memory_bytes = max(self.progress.peak_memory_bytes, *peaks)

    def _show(self, seen: dict[str, Any]) -> None:
        """A progress line on stderr about every ten seconds."""
        now = time.monotonic()
        then, step, n_bytes = self.shown
        if now - then < PROGRESS_SECONDS or not self.ranks.first:
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
