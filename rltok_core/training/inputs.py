"""What a run reads: the windows of a split, with the hints that its estimator asks for."""

import json
from pathlib import Path

import numpy as np

from rltok_core.boundaries.contract import Estimator
from rltok_core.config.schema import RunConfig
from rltok_core.data.batches import Windows
from rltok_core.data.store import ByteStore, load_array
from rltok_core.errors import UserError


def read_data_hash(run: RunConfig, data: Path) -> str:
    """The content hash of a data folder that was built from this run's data section.

    Raises:
        UserError: no manifest, or one of another data configuration.
    """
    path = data / "manifest.json"
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        found, content = manifest["hash"], manifest["content_hash"]
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{path}: not a data folder's manifest ({error!r})") from None
    if found != run.data.hash:
        raise UserError(
            f"{path}: built from another data configuration ({found[:8]}; this run's "
            f"{run.data.name!r} is {run.data.hash[:8]}): run `rltok data build` with this config"
        )
    return content


def read_hints(
    estimator: type[Estimator], store: ByteStore, split: str, data: Path, prepared: Path | None
) -> np.ndarray | None:
    """Boundaries known beforehand, uint8, one a byte of the store; None where none are needed.

    Raises:
        UserError: they are needed and missing, or are of another length than the store.
    """
    if estimator.hint is None:
        return None
    if estimator.hint == "truth":
        if store.truth is None:
            raise UserError(
                f"{data / split / 'truth.npy'}: missing; {estimator.__name__} needs true "
                "boundaries, which only a planted corpus has"
            )
        return store.truth
    if prepared is None:
        raise UserError(f"{estimator.__name__} needs --prepared DIR (see `rltok prepare`)")
    return prepared_hints(prepared, store, split)


def prepared_hints(folder: Path, store: ByteStore, split: str) -> np.ndarray:
    """What `rltok prepare` wrote for a split: uint8, one a byte of the store, memory-mapped.

    Raises:
        UserError: the file is missing or damaged, or was prepared from other data.
    """
    path = folder / f"{split}.hints.npy"
    if not path.is_file():
        raise UserError(f"{path}: missing; make it with `rltok prepare`")
    hints = load_array(path, "r")
    if hints.shape != (len(store.bytes),):
        raise UserError(
            f"{path}: {hints.size} hints for the {len(store.bytes)} bytes of {split}; "
            "it was prepared from other data"
        )
    return hints


def open_windows(
    run: RunConfig, estimator: type[Estimator], split: str, data: Path, prepared: Path | None
) -> Windows:
    """The sequences of one split. Raises UserError where there is none."""
    store = ByteStore.open(data / split)
    hints = read_hints(estimator, store, split, data, prepared)
    windows = Windows(store, run.training.seq_len, run.data.windows, hints)
    if not len(windows):
        raise UserError(f"{data / split}: no document with a byte in it")
    return windows
