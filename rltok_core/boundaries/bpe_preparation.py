"""Prepare BPE boundaries for a data folder: train, choose the number of merges, write hints.

Writes SPLIT.hints.npy (uint8, one a byte), merges.txt (GPT-2's format) and, last of all,
preparation.json with what was asked for and what came out.
"""

import importlib.metadata
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from rltok_core.boundaries.bpe_merges import (
    NEVER,
    boundary_ranks,
    gpt2_alphabet,
    spell,
    train_merges,
)
from rltok_core.data.store import SPLITS, ByteStore
from rltok_core.errors import UserError

CHUNK_BYTES = 1 << 24  # tokenized at a time
TOLERANCE = 0.1  # of the rate asked for; a larger deviation is flagged


@dataclass(frozen=True)
class Params:
    """See configs/estimators/bpe.yaml."""

    max_vocabulary: int
    train_bytes: int
    sequence_bytes: int

    def __post_init__(self):
        if self.max_vocabulary < 256:
            raise ValueError(f"max_vocabulary must be at least 256, got {self.max_vocabulary}")
        if self.train_bytes < 1:
            raise ValueError(f"train_bytes must be positive, got {self.train_bytes}")
        if self.sequence_bytes < 0:
            raise ValueError(f"sequence_bytes must not be negative, got {self.sequence_bytes}")


def sample_documents(store: ByteStore, budget: int) -> list[bytes]:
    """Whole documents in a fixed random order until `budget` bytes are reached."""
    documents, size = [], 0
    for i in np.random.default_rng(0).permutation(len(store)):
        if size >= budget:
            break
        documents.append(store[i].tobytes())
        size += len(documents[-1])
    return documents


def rates(ranks_J: np.ndarray, n_merges: int, lengths: list[int], sequence: int) -> np.ndarray:
    """Boundaries a position with 0, 1, ..., n_merges merges.

    Args:
        ranks_J: boundary ranks of documents, one after the other.
        n_merges: how many there are.
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
    removed = np.bincount(ranks_J[ranks_J < NEVER], minlength=n_merges)
    return (len(ranks_J) - np.concatenate([[0], removed.cumsum()])) / positions


def choose_merges(
    merges_N2: np.ndarray, documents: list[bytes], sequence: int, causal: bool, target_rate: float
) -> tuple[np.ndarray, float]:
    """The first merges, as many as bring the rate on `documents` nearest to the target; the rate.

    A tokenizer fits its own training text, so these should be other documents.
    """
    ranks_J = boundary_ranks(merges_N2, documents, causal)
    rate_N = rates(ranks_J, len(merges_N2), [len(d) for d in documents], sequence)
    best = int(np.abs(rate_N - target_rate).argmin())
    return merges_N2[:best], float(rate_N[best])


def _chunks(store: ByteStore) -> Iterator[tuple[int, list[bytes]]]:
    """(first byte, documents) of about CHUNK_BYTES each."""
    begin = 0
    while begin < len(store):
        limit = store.offsets[begin] + CHUNK_BYTES
        end = max(begin + 1, int(np.searchsorted(store.offsets, limit, "right")) - 1)
        yield int(store.offsets[begin]), [store[i].tobytes() for i in range(begin, end)]
        begin = end


def write_hints(store: ByteStore, merges_N2: np.ndarray, causal: bool, path: Path) -> float | None:
    """Write one uint8 a byte of the store; returns tokens per byte, None for an empty split."""
    partial = path.with_suffix(".partial")
    size, total = len(store.bytes), 0
    if size:
        hints = np.lib.format.open_memmap(partial, "w+", np.uint8, (size,))
        for at, documents in _chunks(store):
            starts_J = boundary_ranks(merges_N2, documents, causal) >= len(merges_N2)
            hints[at : at + len(starts_J)] = starts_J
            total += int(starts_J.sum())
        hints.flush()
        del hints
    else:
        with open(partial, "wb") as file:  # an empty file can't be mapped
            np.save(file, np.zeros(0, np.uint8))
    os.replace(partial, path)
    return total / size if size else None


def prepare(data: Path, out: Path, params: dict, target_rate: float, causal: bool) -> dict:
    """Train on the train split, write the hints of every split, and return what was measured.

    Args:
        data: a data folder (train, validation, test).
        out: where the files go.
        params: of the estimator's YAML.
        target_rate: boundaries a position asked for, see `rates`.
        causal: whether boundaries are those of every prefix tokenized by itself.

    Raises:
        UserError: the data folder is missing or damaged, or its train split has no bytes.
    """
    params = Params(**params)
    manifest = data / "manifest.json"
    try:
        data_hash = json.loads(manifest.read_text(encoding="utf-8"))["content_hash"]
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{manifest}: not a data folder's manifest ({error!r})") from None
    stores = {split: ByteStore.open(data / split) for split in SPLITS}
    documents = sample_documents(stores["train"], params.train_bytes)
    held_out = sample_documents(stores["validation"], params.train_bytes)
    if not any(documents):
        raise UserError(f"{data / 'train'}: no bytes to train BPE on")
    out.mkdir(parents=True, exist_ok=True)
    report = out / "preparation.json"
    report.unlink(missing_ok=True)  # says that all is done: nothing half-made looks finished
    merges_N2, measured = choose_merges(
        train_merges(documents, params.max_vocabulary),
        held_out if any(held_out) else documents,
        params.sequence_bytes,
        causal,
        target_rate,
    )
    deviation = measured / target_rate - 1
    summary = {
        "kind": "bpe_causal" if causal else "bpe",
        "causal": causal,
        "data_hash": data_hash,
        "params": asdict(params),
        "requested_rate": target_rate,
        "measured_rate": measured,
        "measured_on": "validation" if any(held_out) else "train",
        "deviation": deviation,
        "rate_flag": abs(deviation) > TOLERANCE,
        "vocabulary": 256 + len(merges_N2),
        "train_documents": len(documents),
        "train_bytes": sum(map(len, documents)),
        "tokens_per_byte": {
            split: write_hints(store, merges_N2, causal, out / f"{split}.hints.npy")
            for split, store in stores.items()
        },
        "tool_versions": {
            name: importlib.metadata.version(name) for name in ("tokenizers", "numba", "numpy")
        },
    }
    table = gpt2_alphabet()
    text = ["".join(table[byte] for byte in token) for token in spell(merges_N2)]
    lines = [f"{text[left]} {text[right]}\n" for left, right in merges_N2]
    (out / "merges.txt").write_text("".join(lines), encoding="utf-8")
    partial = report.with_suffix(".partial")
    partial.write_text(json.dumps(summary, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    os.replace(partial, report)
    return summary
