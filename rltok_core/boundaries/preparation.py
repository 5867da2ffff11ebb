"""What every prepared estimator shares: sample text, choose by the rate, write hints and a summary.

Writes SPLIT.hints.npy (uint8, one a byte) and, last of all, preparation.json with what was asked
for and what came out.

Ranks: one number a byte says how many steps of "fewer boundaries" its own outlives: with n steps
there is a boundary where the rank is >= n. BPE: merges. Entropy: levels of the threshold.

Shapes: J bytes of all documents.
"""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rltok_core.data.store import SPLITS, ByteStore, npy_file
from rltok_core.errors import UserError
from rltok_core.files import write_whole, written_aside

NEVER = np.iinfo(np.int32).max  # the rank of a boundary that stays, whatever is chosen
CHUNK_BYTES = 1 << 24  # decided at a time
TOLERANCE = 0.1  # of the rate asked for; a larger deviation is flagged


@dataclass
class Choice:
    """What an estimator has settled on.

    Attributes:
        decide: documents -> bool, one a byte, the documents one after the other.
        measured_rate: on the held-out documents.
        summary: what else preparation.json should say.
    """

    decide: Callable[[list[bytes]], np.ndarray]
    measured_rate: float
    summary: dict[str, Any]


def sample_documents(store: ByteStore, budget: int) -> list[bytes]:
    """Whole documents in a fixed random order until `budget` bytes are reached."""
    documents, size = [], 0
    for i in np.random.default_rng(0).permutation(len(store)):
        if size >= budget:
            break
        documents.append(store[i].tobytes())
        size += len(documents[-1])
    return documents


def rates(ranks_J: np.ndarray, n_steps: int, lengths: list[int], sequence: int) -> np.ndarray:
    """Boundaries a position with 0, 1, ..., n_steps steps.

    Args:
        ranks_J: of documents, one after the other.
        n_steps: how many there are.
        lengths: bytes of each document.
        sequence: 0: tokens per byte. Else documents are cut into sequences of this many bytes, and
            each one's forced ends count (bos, which is one more position, and its last byte).
    """
    positions = len(ranks_J)
    if sequence:
        bounds = [(stop - n, stop) for stop, n in zip(np.cumsum(lengths), lengths, strict=True)]
        stops = [np.append(np.arange(b + sequence, e, sequence), e) for b, e in bounds if b < e]
        last = np.concatenate(stops) - 1
        ranks_J = ranks_J.copy()
        ranks_J[last] = NEVER
        ranks_J = np.append(ranks_J, np.full(len(last), NEVER, np.int32))
        positions += len(last)
    removed = np.bincount(ranks_J[ranks_J < NEVER], minlength=n_steps)
    return (len(ranks_J) - np.concatenate([[0], removed.cumsum()])) / positions


def _chunks(store: ByteStore) -> Iterator[list[bytes]]:
    """All documents, in order, about CHUNK_BYTES at a time."""
    begin = 0
    while begin < len(store):
        limit = store.offsets[begin] + CHUNK_BYTES
        end = max(begin + 1, int(np.searchsorted(store.offsets, limit, "right")) - 1)
        yield [store[i].tobytes() for i in range(begin, end)]
        begin = end


def write_hints(
    store: ByteStore, decide: Callable[[list[bytes]], np.ndarray], path: Path
) -> float | None:
    """Write one uint8 a byte of the store; returns tokens per byte, None for an empty split.

    Raises:
        UserError: the disk is full.
    """
    partial = path.with_suffix(".partial")
    size, total = len(store.bytes), 0
    with written_aside(partial, path):
        with npy_file(partial, np.uint8, size) as file:
            for documents in _chunks(store) if size else ():
                starts_J = decide(documents)
                file.write(starts_J.astype(np.uint8).tobytes())
                total += int(starts_J.sum())
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    return total / size if size else None


def prepare_hints(
    data: Path,
    out: Path,
    train_bytes: int,
    target_rate: float,
    choose: Callable[[list[bytes], list[bytes]], Choice],
) -> dict[str, Any]:
    """Train on the train split, write the hints of every split, and return what was measured.

    Args:
        data: a data folder (train, validation, test).
        out: where the files go.
        train_bytes: read of the train split (and of validation) at most, in whole documents.
        target_rate: boundaries a position asked for, see `rates`.
        choose: (training documents, held-out documents) -> what to do. Without a byte of
            validation text the held-out documents are the training ones, and the summary says so.

    Raises:
        UserError: the data folder is missing or damaged, or its train split has no bytes.
    """
    manifest = data / "manifest.json"
    try:
        data_hash = json.loads(manifest.read_text(encoding="utf-8"))["content_hash"]
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{manifest}: not a data folder's manifest ({error!r})") from None
    stores = {split: ByteStore.open(data / split) for split in SPLITS}
    documents = sample_documents(stores["train"], train_bytes)
    held_out = sample_documents(stores["validation"], train_bytes)
    if not any(documents):
        raise UserError(f"{data / 'train'}: no bytes to train on")
    out.mkdir(parents=True, exist_ok=True)
    report = out / "preparation.json"
    report.unlink(missing_ok=True)  # says that all is done: nothing half-made looks finished
    choice = choose(documents, held_out if any(held_out) else documents)
    deviation = choice.measured_rate / target_rate - 1
    summary = {
        "data_hash": data_hash,
        "requested_rate": target_rate,
        "measured_rate": choice.measured_rate,
        "measured_on": "validation" if any(held_out) else "train",
        "deviation": deviation,
        "rate_flag": abs(deviation) > TOLERANCE,
        "train_documents": len(documents),
        "train_bytes": sum(map(len, documents)),
        "empty_documents": {
            split: int((np.diff(store.offsets) == 0).sum()) for split, store in stores.items()
        },
        "tokens_per_byte": {
            split: write_hints(store, choice.decide, out / f"{split}.hints.npy")
            for split, store in stores.items()
        },
        **choice.summary,
    }
    write_whole(report, (json.dumps(summary, indent=2, allow_nan=False) + "\n").encode())
    return summary
