"""How much of the test split can be found, word for word, in the train split.

As in contamination studies that look for shared 13-grams of words, but for any script: a window of
64 bytes (13 English words are some 70) at every byte of a test document, each whole inside of its
document. A window is shared if the same 64 bytes are somewhere in a train document. Documents of a
split are in random order, so the first ones are a sample; how many were looked at is said, and of
a train split above 1 GiB, how much.

Windows are compared by a 64-bit hash: a false match has a chance of about
(windows of test) x (windows of train) / 2^64, which is 1e-6 for 4 million and 4 million.

Shapes: N bytes of a piece, one window starting at each.
"""

from dataclasses import dataclass

import numpy as np

from rltok_core.data.store import ByteStore

WINDOW = 64
SAMPLE_BYTES = 1 << 22  # of the test split
TRAIN_BYTES = 1 << 30  # looked through: some minutes
PIECE_BYTES = 1 << 22  # of them at once
FILTER_BITS = 26
_FACTOR = 0x9E3779B97F4A7C15  # odd, so that no byte's weight vanishes modulo 2^64


@dataclass(frozen=True)
class Overlap:
    """Of the test documents looked at.

    Attributes:
        documents, windows: how many there were.
        shared: windows that are in train too.
        mostly_shared: documents with at least half of their windows in train.
        train_bytes: of train that were looked through.
    """

    documents: int
    windows: int
    shared: int
    mostly_shared: int
    train_bytes: int


def window_hashes(data: np.ndarray) -> np.ndarray:
    """uint64 (n - WINDOW + 1,): a polynomial hash of every window of the bytes, by doubling."""
    if len(data) < WINDOW:
        return np.zeros(0, np.uint64)
    hash_N, width, factor = data.astype(np.uint64) + np.uint64(1), 1, _FACTOR
    while width < WINDOW:
        hash_N = hash_N[:-width] * np.uint64(factor) + hash_N[width:]
        factor = factor * factor % (1 << 64)
        width *= 2
    # the upper bits are used to filter: let every bit reach them
    hash_N ^= hash_N >> np.uint64(29)
    return hash_N * np.uint64(0xBF58476D1CE4E5B9)


def measure(test: ByteStore, train: ByteStore) -> Overlap:
    """The overlap of test's first SAMPLE_BYTES, in whole documents, with train's TRAIN_BYTES."""
    hashes, total = [], 0
    for i in range(len(test)):
        if total >= SAMPLE_BYTES:
            break
        hashes.append(window_hashes(test[i]))
        total += len(test[i])
    every = np.concatenate(hashes) if hashes else np.zeros(0, np.uint64)
    wanted = np.unique(every)
    found = np.zeros(len(wanted), dtype=bool)
    train_bytes = min(len(train.bytes), TRAIN_BYTES)
    if len(wanted):
        _look(train, train_bytes, wanted, found)
    shared = [found[np.searchsorted(wanted, document)] for document in hashes]
    return Overlap(
        documents=len(hashes),
        windows=len(every),
        shared=int(sum(part.sum() for part in shared)),
        mostly_shared=sum(bool(len(part)) and bool(part.mean() >= 0.5) for part in shared),
        train_bytes=train_bytes,
    )


def _look(train: ByteStore, size: int, wanted: np.ndarray, found: np.ndarray) -> None:
    """Set `found` where a wanted hash is that of a window that starts in train's first bytes."""
    shift = np.uint64(64 - FILTER_BITS)
    maybe = np.zeros(1 << FILTER_BITS, dtype=bool)
    maybe[wanted >> shift] = True
    for start in range(0, size, PIECE_BYTES):
        end = min(size, start + PIECE_BYTES) + WINDOW - 1
        hash_N = window_hashes(np.asarray(train.bytes[start:end]))
        hash_N = hash_N[_inside(train.offsets, start, len(hash_N))]
        hash_N = hash_N[maybe[hash_N >> shift]]
        place = np.searchsorted(wanted, hash_N)
        place[place == len(wanted)] = 0
        found[place[wanted[place] == hash_N]] = True


def _inside(offsets: np.ndarray, start: int, count: int) -> np.ndarray:
    """bool (count,): the windows that begin at start, start + 1, ... inside one document."""
    first = max(0, int(np.searchsorted(offsets, start, "right")) - 1)
    last = int(np.searchsorted(offsets, start + count, "left"))
    bound = np.asarray(offsets[first : last + 1])
    # +1 where windows of a document begin to fit, -1 where they end
    begin = np.clip(bound[:-1] - start, 0, count)
    end = np.clip(np.maximum(bound[1:] - WINDOW + 1 - start, begin), 0, count)
    change = np.bincount(begin, minlength=count + 1) - np.bincount(end, minlength=count + 1)
    return np.cumsum(change)[:count] > 0
