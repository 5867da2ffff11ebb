"""The byte store: the documents of one split in flat files, memory-mapped.

A split's folder holds bytes.bin (raw bytes, one document after the other), offsets.npy (int64,
documents + 1), names.json, and for the planted language truth.npy (uint8, one a byte).
"""

import hashlib
import json
import mmap
import os
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

import numpy as np

from rltok_core.data.documents import Document
from rltok_core.errors import UserError

SPLITS = ("train", "validation", "test")
PIECE = 1 << 20  # offsets looked at together


class ByteStore:
    """Documents of one split; nothing is read before it is asked for.

    Attributes:
        bytes: uint8, all documents, mapped from the file.
        offsets: int64, mapped too; document i is bytes[offsets[i]:offsets[i + 1]].
        truth: uint8, mapped too, 1 on the last byte of each code word; None for real text.
    """

    def __init__(self, folder: Path, data, offsets: np.ndarray, truth):
        self.folder, self.bytes, self.offsets, self.truth = folder, data, offsets, truth

    @classmethod
    def open(cls, folder: Path) -> "ByteStore":
        """Open a split's folder, such as results/data/prose-1a2b3c4d/train.

        Raises:
            UserError: a file is missing or damaged; the message names it.
        """
        folder = Path(folder)
        bytes_path, offsets_path = folder / "bytes.bin", folder / "offsets.npy"
        for path in (bytes_path, offsets_path):
            if not path.is_file():
                raise UserError(f"{path}: no such file; build it with `rltok data build`")
        size = bytes_path.stat().st_size
        offsets = np.asarray(_load(offsets_path, "r"))
        whole = offsets.dtype == np.int64 and offsets.ndim == 1 and len(offsets) > 0
        if not whole or offsets[0] != 0 or not _rises(offsets):
            raise UserError(f"{offsets_path}: damaged: not a rising list of offsets")
        if offsets[-1] != size:
            raise UserError(f"{bytes_path}: damaged: {size} bytes where {offsets[-1]} should be")
        # an empty file can't be mapped; a plain array on the map slices much faster than a memmap
        data = np.asarray(np.memmap(bytes_path, np.uint8, "r")) if size else np.zeros(0, np.uint8)
        truth_path = folder / "truth.npy"
        truth = np.asarray(_load(truth_path, "r")) if truth_path.exists() else None
        if truth is not None and (truth.shape != (size,) or truth.dtype != np.uint8):
            raise UserError(f"{truth_path}: damaged: not one uint8 for each of {size} bytes")
        return cls(folder, data, offsets, truth)

    @cached_property
    def names(self) -> list[str]:
        """Where each document came from; read when first asked for."""
        path = self.folder / "names.json"
        try:
            names = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(f"{path}: missing or damaged: {error}") from None
        if len(names) != len(self):
            raise UserError(f"{path}: damaged: {len(names)} names for {len(self)} documents")
        return names

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> np.ndarray:
        """Document i, a uint8 view. Raises IndexError outside of 0..len - 1."""
        if not 0 <= i < len(self):
            raise IndexError(f"document {i} of {len(self)}")
        return self.bytes[self.offsets[i] : self.offsets[i + 1]]

    def sha256(self) -> str:
        """The hash of bytes, offsets and truth: what the manifest says of this split."""
        digest = hashlib.sha256()
        parts = [self.bytes, self.offsets, self.truth if self.truth is not None else self.bytes[:0]]
        for part in parts:
            for start in range(0, len(part), 1 << 24):
                digest.update(np.ascontiguousarray(part[start : start + (1 << 24)]))
        return digest.hexdigest()


def _rises(offsets: np.ndarray) -> bool:
    """Whether no offset is smaller than the one before, read piece by piece."""
    pieces = range(0, len(offsets) - 1, PIECE)
    rises = not any((np.diff(offsets[first : first + PIECE + 1]) < 0).any() for first in pieces)
    release(offsets)
    return rises


def release(*arrays: np.ndarray | None) -> None:
    """Give back the pages of mapped files that reading has touched.

    They stay in the system's cache, so reading them again costs little, but they no longer count
    as this process's memory, which would otherwise grow with the part of the store that it has
    seen. Arrays that aren't mapped are left alone.
    """
    for array in arrays:
        base = array
        while isinstance(base, np.ndarray):
            base = base.base
        if isinstance(base, mmap.mmap):
            base.madvise(mmap.MADV_DONTNEED)


def _load(path: Path, mmap_mode: str | None = None) -> np.ndarray:
    """np.load, with a message that names the file."""
    try:
        return np.load(path, mmap_mode=mmap_mode)
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"{path}: missing or damaged: {error}") from None


def write_split(
    folder: Path, sizes: np.ndarray, documents: Iterable[Document], with_truth: bool
) -> ByteStore:
    """Write a split's folder, one document at a time, and sync it to disk.

    Args:
        folder: made here.
        sizes: int64, the documents' lengths in bytes, known beforehand.
        documents: as many as `sizes`.
        with_truth: whether they carry boundaries.
    """
    folder.mkdir(parents=True)
    offsets = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)
    np.save(folder / "offsets.npy", offsets)
    truth = None
    if with_truth:
        truth = np.lib.format.open_memmap(folder / "truth.npy", "w+", np.uint8, (int(offsets[-1]),))
    with (
        open(folder / "bytes.bin", "wb") as data_file,
        open(folder / "names.json", "w", encoding="utf-8") as names_file,
    ):
        for i, document in enumerate(documents):
            data_file.write(document.data)
            names_file.write(("[\n" if i == 0 else ",\n") + json.dumps(document.name))
            if truth is not None:
                truth[offsets[i] : offsets[i + 1]] = document.truth
        names_file.write("\n]\n" if len(sizes) else "[]\n")
    if truth is not None:
        truth.flush()
    for path in folder.iterdir():
        with open(path, "rb") as file:
            os.fsync(file.fileno())
    return ByteStore.open(folder)
