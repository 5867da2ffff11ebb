"""Sequences of a store, and which of them a training step sees.

Rows are never packed: a row is one document, or one window of it. Everything here is a function
of its arguments alone, so that resuming, ranks and workers can't change the order of data.

Shapes: K blocks of a store's documents, B rows, S positions.
"""

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b, sha256
from typing import Literal

import numpy as np
import torch

from rltok_core.data.batch import Batch
from rltok_core.data.store import ByteStore, release
from rltok_core.data.stream import RandomStream, stream_key
from rltok_core.data.vocabulary import BOS, N_SPECIAL, PAD
from rltok_core.errors import UserError

BLOCK = 128  # documents whose windows are counted together
ROWS_MAPPED = 256  # rows read before the store's pages are given back: 64 kB each at most
LARGEST_SHUFFLED = 1 << 20  # windows permuted in memory: 8 MB an epoch
ROUNDS = 6


class Windows:
    """The sequences of a store: bos and up to seq_len - 1 bytes of one document.

    What it holds in memory is 8 bytes for BLOCK documents: the windows before each block. The rest
    is worked out from the store's mapped offsets when a window is asked for.

    Args:
        store: the documents.
        seq_len: positions S of a full sequence, bos included.
        mode: "first": a document's first window alone; "all": every window of it.
        hints: uint8, one a byte of the store, 1 where a boundary is known; None for none.

    Attributes:
        skipped: empty documents, which have no window.

    Raises:
        UserError: hints that are not one a byte.
    """

    def __init__(
        self,
        store: ByteStore,
        seq_len: int,
        mode: Literal["first", "all"],
        hints: np.ndarray | None = None,
    ):
        if hints is not None and hints.shape != store.bytes.shape:
            raise UserError(
                f"{store.folder}: {hints.shape[0]} boundary hints for {len(store.bytes)} bytes; "
                "were they prepared from other data?"
            )
        self.store, self.hints = store, hints
        self._mode, self._step = mode, seq_len - 1
        self._digests: dict[int, str] = {}
        self._rows_read = 0
        self.skipped = 0
        counts = [0]
        for block in range(0, len(store), BLOCK):
            sizes = self._sizes(block)
            self.skipped += int((sizes == 0).sum())
            counts.append(int(self._counts(sizes).sum()))
        self._before_K = np.cumsum(counts)
        release(store.offsets)

    def _sizes(self, first: int) -> np.ndarray:
        """Bytes of the documents of the block that begins with document `first`."""
        return np.diff(self.store.offsets[first : first + BLOCK + 1])

    def _counts(self, sizes: np.ndarray) -> np.ndarray:
        """Windows of documents of these sizes."""
        return -(-sizes // self._step) if self._mode == "all" else np.minimum(sizes, 1)

    def __len__(self) -> int:
        return int(self._before_K[-1])

    def places(self, indices: Sequence[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(document_B, start_B, size_B) of windows: document, first byte in it, bytes; int64."""
        places = np.empty((3, len(indices)), dtype=np.int64)
        block_B = np.searchsorted(self._before_K, indices, side="right") - 1
        for row, (index, block) in enumerate(zip(indices, block_B.tolist(), strict=True)):
            sizes = self._sizes(block * BLOCK)
            ends = np.cumsum(self._counts(sizes)) + self._before_K[block]
            inside = int(np.searchsorted(ends, index, side="right"))
            first = ends[inside - 1] if inside else self._before_K[block]
            start = (index - first) * self._step
            places[:, row] = block * BLOCK + inside, start, min(sizes[inside] - start, self._step)
        return tuple(places)

    def of_document(self, document: int) -> range:
        """The windows of a document, in order."""
        block, inside = divmod(document, BLOCK)
        counts = self._counts(self._sizes(block * BLOCK))
        first = int(self._before_K[block] + counts[:inside].sum())
        return range(first, first + int(counts[inside]))

    def batch(
        self,
        indices: list[int],
        stream_keys: list[int],
        device="cpu",
        constant: float | None = None,
        pad_to: int | None = None,
    ) -> Batch:
        """The windows `indices` as rows, each with its own random stream.

        Args:
            indices: windows, 0..len - 1.
            stream_keys: one a row.
            device: where the tensors go.
            constant: passed to RandomStream (0.5: thresholding).
            pad_to: positions; None: as many as the longest row.
        """
        document_B, start_B, size_B = self.places(indices)
        width = int(size_B.max()) + 1 if pad_to is None else pad_to
        ids_BS = np.full((len(indices), width), PAD, dtype=np.int64)
        ids_BS[:, 0] = BOS
        hint_BS = None if self.hints is None else np.zeros((len(indices), width), dtype=bool)
        documents = list(zip(document_B.tolist(), start_B.tolist(), strict=True))
        for row, ((document, start), size) in enumerate(
            zip(documents, size_B.tolist(), strict=True)
        ):
            place = int(self.store.offsets[document]) + start
            # int64 before adding: ids above 255 must never pass through uint8
            ids_BS[row, 1 : size + 1] = self.store.bytes[place : place + size]
            ids_BS[row, 1 : size + 1] += N_SPECIAL
            if hint_BS is not None:
                hint_BS[row, 1 : size + 1] = self.hints[place : place + size]
        self._rows_read += len(indices)
        if self._rows_read >= ROWS_MAPPED:
            release(self.store.bytes, self.store.offsets, self.hints)
            self._rows_read = 0
        return Batch(
            ids_BS=torch.from_numpy(ids_BS).to(device),
            length_B=torch.from_numpy(size_B + 1).to(device),
            stream=RandomStream(stream_keys, device, constant),
            hint_BS=None if hint_BS is None else torch.from_numpy(hint_BS).to(device),
            documents=tuple(documents),
        )

    def evaluation_key(self, index: int, stream_seed: int) -> int:
        """The stream key of a window in evaluation: of its document's bytes and place alone."""
        document, start, _ = (int(part[0]) for part in self.places([index]))
        if document not in self._digests:
            self._digests[document] = sha256(np.ascontiguousarray(self.store[document])).hexdigest()
        return evaluation_key(stream_seed, self._digests[document], start)


def evaluation_key(stream_seed: int, digest: str, start: int) -> int:
    """The stream key in evaluation of the window at byte `start` of a document with this sha256."""
    return stream_key(stream_seed, "evaluate", digest, start)


def training_indices(n_windows: int, batch_size: int, step: int, seed: int) -> list[int]:
    """The windows of the global batch of a step (from 0): a function of (step, seed) alone.

    Each epoch is a seeded permutation of all windows; a batch may reach into the next epoch. Up to
    LARGEST_SHUFFLED windows it is drawn as a whole; beyond, each place is computed by itself, so
    that memory doesn't grow with the store.

    Raises:
        UserError: there is no window.
    """
    if n_windows < 1:
        raise UserError("the training split has no sequence")
    chosen = []
    for place in range(step * batch_size, (step + 1) * batch_size):
        epoch, within = divmod(place, n_windows)
        if n_windows <= LARGEST_SHUFFLED:
            chosen.append(int(_permutation(n_windows, seed, epoch)[within]))
        else:
            chosen.append(permuted(within, n_windows, stream_key(seed, "order", epoch)))
    return chosen


@lru_cache(maxsize=2)  # a batch touches two epochs at most, unless it is larger than one
def _permutation(n_windows: int, seed: int, epoch: int) -> np.ndarray:
    rng = np.random.Generator(np.random.Philox(key=stream_key(seed, "order", epoch)))
    return rng.permutation(n_windows)


def permuted(place: int, n: int, key: int) -> int:
    """Where a keyed permutation of 0 .. n - 1 takes `place`, without a table of it.

    A balanced Feistel network of ROUNDS rounds on the next even number of bits (Luby & Rackoff
    1988, "How to construct pseudorandom permutations from pseudorandom functions"; rounds by
    blake2b), walked on until it lands below n (Black & Rogaway 2002, "Ciphers with arbitrary
    finite domains"): at most 4 walks on average.
    """
    half = max(1, ((n - 1).bit_length() + 1) // 2)
    mask, secret = (1 << half) - 1, key.to_bytes(8, "little")
    while True:
        left, right = place >> half, place & mask
        for number in range(ROUNDS):
            text = bytes([number]) + right.to_bytes(8, "little")
            mixed = int.from_bytes(blake2b(text, digest_size=8, key=secret).digest(), "little")
            left, right = right, left ^ (mixed & mask)
        place = left << half | right
        if place < n:
            return place
