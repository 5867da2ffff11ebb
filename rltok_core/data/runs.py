"""Sorted runs: documents on their way to the store, on disk, in memory that doesn't grow with them.

A document's key is a hash of its bytes, keyed by the split's seed. It does three things: equal
keys are exact duplicates; the order of keys is the seeded shuffle; and since it looks at nothing
else, neither depends on the number or the order of the input files.

A run is a folder: `index`, the records in the order of their keys, and `body`, each document's
name, bytes and truth in the same order. Runs are merged as in any external sort: a range of keys
at a time, whose records fit in memory, while every body is read once from front to back. Of exact
duplicates the first is kept: in the order of the runs, and within one in the order of adding.

Shapes: N records of a range of keys, from all runs.
"""

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from rltok_core.data.documents import Document

RECORD = np.dtype(
    [("high", "<u8"), ("low", "<u8"), ("bytes", "<i8"), ("name", "<i4"), ("declared", "u1"),
     ("truth", "u1")]
)  # fmt: skip
DECLARED = (None, "test", "validation")  # codes of Document.split
HELD_BYTES = 1 << 26  # documents in memory before they become a run
OVERHEAD = 400  # bytes that a document in memory takes beside its own, roughly
RANGE = 1 << 17  # records of all runs in memory at once, roughly
FAN_IN = 200  # runs merged at once: two open files each
BUFFERS = 1 << 26  # bytes, of all the bodies that are read at once


def key_of(data: bytes, salt: bytes) -> tuple[int, int]:
    """The two 64-bit halves of a document's key."""
    digest = hashlib.blake2b(data, digest_size=16, key=salt).digest()
    return int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:], "big")


class RunWriter:
    """Write a run; documents come in the order of their keys."""

    def __init__(self, folder: Path):
        folder.mkdir(parents=True)
        self.folder, self._pending = folder, []
        self._index = open(folder / "index", "wb")  # noqa: SIM115
        self._body = open(folder / "body", "wb", buffering=1 << 20)  # noqa: SIM115

    def add(self, record: tuple, body: bytes) -> None:
        """A record, in RECORD's order, and the document's name, bytes and truth."""
        self._pending.append(record)
        self._body.write(body)
        if len(self._pending) == 4096:
            self._flush()

    def _flush(self) -> None:
        self._index.write(np.array(self._pending, RECORD).tobytes())
        self._pending = []

    def close(self) -> Path:
        """End of writing (may be called twice)."""
        if not self._index.closed:
            self._flush()
        self._index.close()
        self._body.close()
        return self.folder


class Sorter:
    """Add documents in any order; they end as one run.

    Args:
        folder: for runs on the way; made here, removed by finish().
        seed: of the shuffle.

    Attributes:
        documents, bytes: added so far, exact duplicates included.
    """

    def __init__(self, folder: Path, seed: int):
        folder.mkdir(parents=True)
        self._folder, self._salt = folder, str(seed).encode()
        self._held: list[tuple[tuple, bytes]] = []
        self._held_bytes = 0
        self._runs: list[Path] = []
        self.documents = self.bytes = 0

    def add(self, document: Document) -> None:
        name = document.name.encode("utf-8", "surrogateescape")
        body, truth = name + document.data, document.truth is not None
        if truth:
            body += document.truth.tobytes()
        record = (
            *key_of(document.data, self._salt),
            *(len(document.data), len(name), DECLARED.index(document.split), truth),
        )
        self._held.append((record, body))
        self._held_bytes += len(body) + OVERHEAD
        self.documents += 1
        self.bytes += len(document.data)
        if self._held_bytes >= HELD_BYTES:
            self._flush()

    def _flush(self) -> None:
        run = RunWriter(self._folder / str(len(self._runs)))
        try:
            last = None
            for record, body in sorted(self._held, key=lambda held: held[0][:2]):  # stable
                if record[:2] != last:
                    run.add(record, body)
                last = record[:2]
        finally:
            self._runs.append(run.close())
        self._held, self._held_bytes = [], 0

    def finish(self, target: Path) -> None:
        """Make the one run of all that was added, exact duplicates dropped."""
        self._flush()
        (run,) = fewer(self._runs, self._folder, 1)
        run.rename(target)
        shutil.rmtree(self._folder)


def fewer(runs: list[Path], folder: Path, most: int = FAN_IN, keep: bool = False) -> list[Path]:
    """Merge neighbours until at most `most` runs are left.

    Args:
        folder: where merged runs go.
        keep: leave the runs that were given where they are; all others are removed once merged.
    """
    level = 0
    while len(runs) > most:
        groups = [runs[i : i + FAN_IN] for i in range(0, len(runs), FAN_IN)]
        merged_runs = []
        for i, group in enumerate(groups):
            merged_runs.append(_merge(group, folder / f"merged-{level}-{i}"))
            if level or not keep:
                for run in group:
                    shutil.rmtree(run)
        runs, level = merged_runs, level + 1
    return runs


def _merge(runs: list[Path], target: Path) -> Path:
    writer = RunWriter(target)
    try:
        for record, body in merged(runs):
            writer.add(record, body)
    finally:
        writer.close()
    return target


def document_of(record: tuple, body: bytes) -> Document:
    """The document of a record and its body."""
    _, _, size, name, declared, truth = record
    return Document(
        body[:name].decode("utf-8", "surrogateescape"),
        body[name : name + size],
        np.frombuffer(body, np.uint8, offset=name + size) if truth else None,
        DECLARED[declared],
    )


def merged(runs: list[Path]) -> Iterator[tuple[tuple, bytes]]:
    """(record, body) of every document in the order of keys, exact duplicates left out."""
    buffer = max(1 << 16, BUFFERS // max(1, len(runs)))
    bodies = [open(run / "body", "rb", buffering=buffer) for run in runs]  # noqa: SIM115
    try:
        for record_N, run_N, first_N in merged_index(runs):
            columns = (record_N.tolist(), run_N.tolist(), first_N.tolist())
            for record, run, first in zip(*columns, strict=True):
                size = record[2] * (1 + record[5]) + record[3]
                if first:
                    yield record, bodies[run].read(size)
                else:
                    bodies[run].seek(size, 1)
    finally:
        for body in bodies:
            body.close()


def merged_index(runs: list[Path]) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """The records of all runs, a range of keys at a time.

    Yields:
        record_N: RECORD, in the order of keys.
        run_N: which run each is from; it is the next one there.
        first_N: bool, False for exact duplicates of an earlier record.
    """
    total = sum((run / "index").stat().st_size for run in runs) // RECORD.itemsize
    # keys are uniform, so equal ranges hold about as many records each
    ranges = max(1, -(-total // RANGE))
    bounds = [(i << 64) // ranges for i in range(1, ranges)]
    chunk = max(64, 2 * RANGE // max(1, len(runs)))
    cursors = [_Cursor(run / "index", chunk) for run in runs]
    try:
        for bound in [*bounds, None]:
            parts = [cursor.take(bound) for cursor in cursors]
            record_N = np.concatenate(parts) if parts else np.zeros(0, RECORD)
            run_N = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
            order = np.lexsort((record_N["low"], record_N["high"]))  # stable
            record_N, run_N = record_N[order], run_N[order]
            first_N = np.ones(len(order), dtype=bool)
            first_N[1:] = record_N["high"][1:] != record_N["high"][:-1]
            first_N[1:] |= record_N["low"][1:] != record_N["low"][:-1]
            yield record_N, run_N, first_N
    finally:
        for cursor in cursors:
            cursor.close()


class _Cursor:
    """The records of one index, from front to back."""

    def __init__(self, path: Path, chunk: int):
        self._file, self._chunk = open(path, "rb"), chunk  # noqa: SIM115
        self._ahead = np.zeros(0, RECORD)

    def take(self, bound: int | None) -> np.ndarray:
        """The next records, as long as the first half of their key is below `bound`."""
        taken = []
        while True:
            if not len(self._ahead):
                self._ahead = np.fromfile(self._file, RECORD, self._chunk)
            n = len(self._ahead)
            if bound is not None:
                n = int(np.searchsorted(self._ahead["high"], np.uint64(bound)))
            taken.append(self._ahead[:n])
            here = len(self._ahead)
            self._ahead = self._ahead[n:]
            if n < here or not here:
                return np.concatenate(taken)

    def close(self) -> None:
        self._file.close()
