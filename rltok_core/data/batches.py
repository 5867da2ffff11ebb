"""Sequences of a store, and which of them a training step sees.

Rows are never packed: a row is one document, or one window of it. Everything here is a function
of its arguments alone, so that resuming, ranks and workers can't change the order of data.

Shapes: W windows of a store, B rows, S positions.
"""

from functools import lru_cache
from hashlib import sha256
from typing import Literal

import numpy as np
import torch

from rltok_core.data.batch import Batch
from rltok_core.data.store import ByteStore
from rltok_core.data.stream import RandomStream, stream_key
from rltok_core.data.vocabulary import BOS, N_SPECIAL, PAD
from rltok_core.errors import UserError


class Windows:
    """The sequences of a store: bos and up to seq_len - 1 bytes of one document.

    Args:
        store: the documents.
        seq_len: positions S of a full sequence, bos included.
        mode: "first": a document's first window alone; "all": every window of it.
        hints: uint8, one a byte of the store, 1 where a boundary is known; None for none.

    Attributes:
        document_W, start_W, size_W: each window's document, first byte in it, and bytes.
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
        self._digests: dict[int, str] = {}
        step = seq_len - 1
        sizes = np.diff(store.offsets)
        self.skipped = int((sizes == 0).sum())
        count = -(-sizes // step) if mode == "all" else np.minimum(sizes, 1)
        self.document_W = np.repeat(np.arange(len(sizes)), count)
        first_W = np.repeat(np.cumsum(count) - count, count)
        self.start_W = (np.arange(len(self.document_W)) - first_W) * step
        self.size_W = np.minimum(sizes[self.document_W] - self.start_W, step)

    def __len__(self) -> int:
        return len(self.document_W)

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
        size_B = self.size_W[indices]
        width = int(size_B.max()) + 1 if pad_to is None else pad_to
        ids_BS = np.full((len(indices), width), PAD, dtype=np.int64)
        ids_BS[:, 0] = BOS
        hint_BS = None if self.hints is None else np.zeros((len(indices), width), dtype=bool)
        documents = []
        for row, index in enumerate(indices):
            document, start = int(self.document_W[index]), int(self.start_W[index])
            size = int(size_B[row])
            place = int(self.store.offsets[document]) + start
            # int64 before adding: ids above 255 must never pass through uint8
            ids_BS[row, 1 : size + 1] = self.store.bytes[place : place + size]
            ids_BS[row, 1 : size + 1] += N_SPECIAL
            if hint_BS is not None:
                hint_BS[row, 1 : size + 1] = self.hints[place : place + size]
            documents.append((document, start))
        return Batch(
            ids_BS=torch.from_numpy(ids_BS).to(device),
            length_B=torch.from_numpy(size_B.astype(np.int64) + 1).to(device),
            stream=RandomStream(stream_keys, device, constant),
            hint_BS=None if hint_BS is None else torch.from_numpy(hint_BS).to(device),
            documents=tuple(documents),
        )

    def evaluation_key(self, index: int, stream_seed: int) -> int:
        """The stream key of a window in evaluation: of its document's bytes and place alone."""
        document, start = int(self.document_W[index]), int(self.start_W[index])
        if document not in self._digests:
            self._digests[document] = sha256(np.ascontiguousarray(self.store[document])).hexdigest()
        return evaluation_key(stream_seed, self._digests[document], start)


def evaluation_key(stream_seed: int, digest: str, start: int) -> int:
    """The stream key in evaluation of the window at byte `start` of a document with this sha256."""
    return stream_key(stream_seed, "evaluate", digest, start)


def training_indices(n_windows: int, batch_size: int, step: int, seed: int) -> list[int]:
    """The windows of the global batch of a step (from 0): a function of (step, seed) alone.

    Each epoch is a seeded permutation of all windows; a batch may reach into the next epoch.

    Raises:
        UserError: there is no window.
    """
    if n_windows < 1:
        raise UserError("the training split has no sequence")
    chosen = []
    for place in range(step * batch_size, (step + 1) * batch_size):
        epoch, within = divmod(place, n_windows)
        chosen.append(int(_permutation(n_windows, seed, epoch)[within]))
    return chosen


@lru_cache(maxsize=2)  # a batch touches two epochs at most, unless it is larger than one
def _permutation(n_windows: int, seed: int, epoch: int) -> np.ndarray:
    rng = np.random.Generator(np.random.Philox(key=stream_key(seed, "order", epoch)))
    return rng.permutation(n_windows)
