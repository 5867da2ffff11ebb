"""Checkpoints: CHECKPOINTS/step_00000050.pt and its sha256 beside it.

The sidecar is put in place before the checkpoint, so a checkpoint under its own name always has
one; a damaged newest checkpoint is skipped, with a warning, for the one before (promise 3).
"""

import hashlib
import io
import sys
from pathlib import Path
from typing import Any

import torch

from rltok_core.config.schema import RunConfig
from rltok_core.errors import UserError
from rltok_core.files import write_whole

HASHED = ("data", "model", "estimator", "training", "seed")  # the sections of RunConfig.hash


def _flat(values: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(values, dict):
        return {prefix: values}
    flat = {}
    for key, value in values.items():
        flat |= _flat(value, f"{prefix}.{key}" if prefix else str(key))
    return flat


def require_same_run(found: dict, found_hash: str, run: RunConfig, where: Path) -> None:
    """Refuse what another configuration made.

    Args:
        found, found_hash: the configuration (model_dump) and RunConfig.hash that `where` carries.

    Raises:
        UserError: the hashes differ; every differing key is named with both values.
    """
    if found_hash == run.hash:
        return
    here = run.model_dump(mode="json")
    old, new = (_flat({k: values.get(k) for k in HASHED}) for values in (found, here))
    absent = "(absent)"
    differing = [
        f"{key} {old.get(key, absent)!r} there, {new.get(key, absent)!r} now"
        for key in sorted(old.keys() | new.keys())
        if old.get(key, absent) != new.get(key, absent)
    ]
    raise UserError(
        f"{where}: made by another configuration ({found_hash[:8]}, this run is "
        f"{run.hash[:8]}): {'; '.join(differing) or 'keys unknown'}. Give this run its own folder"
    )


def checkpoint_path(folder: Path, step: int) -> Path:
    return folder / f"step_{step:08d}.pt"


def _sidecar(path: Path) -> Path:
    return path.with_suffix(".sha256")


def saved_steps(folder: Path) -> list[int]:
    """Steps that have a checkpoint file, oldest first; whole or not."""
    return sorted(int(path.stem.removeprefix("step_")) for path in folder.glob("step_*.pt"))


def save(folder: Path, step: int, state: dict[str, Any], keep: int) -> Path:
    """Write the checkpoint of `step`, then remove all but the newest `keep`.

    Args:
        state: tensors and plain values; loaded back with weights_only, so no classes.

    Raises:
        UserError: full disk; the message names the checkpoint that is still there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = checkpoint_path(folder, step)
    buffer = io.BytesIO()
    torch.save(state, buffer)
    data = buffer.getbuffer()
    before = [s for s in saved_steps(folder) if s != step]
    try:
        write_whole(_sidecar(path), hashlib.sha256(data).hexdigest().encode() + b"\n")
        write_whole(path, data)
    except UserError as error:
        _sidecar(path).unlink(missing_ok=True)
        kept = f"step {before[-1]} ({checkpoint_path(folder, before[-1])})" if before else "none"
        raise UserError(f"{error}. Newest checkpoint kept: {kept}") from None
    for old in [*before, step][:-keep]:
        checkpoint_path(folder, old).unlink(missing_ok=True)
        _sidecar(checkpoint_path(folder, old)).unlink(missing_ok=True)
    return path


def _read(path: Path) -> dict[str, Any]:
    """Raises ValueError where the file isn't what was written."""
    if not _sidecar(path).is_file():
        raise ValueError(f"its checksum {_sidecar(path).name} is missing")
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != _sidecar(path).read_text().strip():
        raise ValueError("its sha256 differs from the one written beside it")
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)


def load(folder: Path, step: int) -> dict[str, Any]:
    """The checkpoint of `step`, which another process has found whole.

    Raises:
        UserError: it can't be read here.
    """
    path = checkpoint_path(folder, step)
    try:
        return _read(path)
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path}: rank 0 has read it, this process can't ({error}); run folders must lie where "
            "all nodes see them"
        ) from None


def load_newest(folder: Path, run: RunConfig, data_hash: str) -> dict[str, Any] | None:
    """The newest whole checkpoint of this run, or None where there is none to go on from.

    Raises:
        UserError: it belongs to another configuration or other data (the keys are named).
    """
    damaged = False
    for step in reversed(saved_steps(folder)):
        path = checkpoint_path(folder, step)
        try:
            state = _read(path)
        except ValueError as error:
            aside = path.with_suffix(".damaged")
            path.rename(aside)
            _warn(f"checkpoint {path} is damaged ({error}), moved to {aside.name}")
            damaged = True
            continue
        require_same_run(state["config"], state["run_hash"], run, path)
        if state["data_hash"] != data_hash:
            raise UserError(
                f"{path}: trained on other data (data_hash {state['data_hash'][:8]} there, "
                f"{data_hash[:8]} now). Give this run its own folder"
            )
        if damaged:
            _warn(f"going on from the checkpoint before it, {path}")
        return state
    if damaged:
        _warn(f"no whole checkpoint is left in {folder}: beginning at step 0")
    return None


def _warn(message: str) -> None:
    print(f"rltok train: warning: {message}", file=sys.stderr, flush=True)
