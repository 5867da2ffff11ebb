"""The byte store: the documents of one split in flat files, memory-mapped.

A split's folder holds bytes.bin (raw bytes, one document after the other), offsets.npy (int64,
documents + 1), names.json, and for the planted language truth.npy (uint8, one a byte).
"""

import hashlib
import json
import mmap
import os
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np

from rltok_core.data.documents import Document
from rltok_core.errors import UserError

SPLITS = ("train", "validation", "test")
PIECE = 1 << 22  # bytes or numbers at once, of files that may be larger than memory


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
        offsets = np.asarray(load_array(offsets_path, "r"))
        whole = offsets.dtype == np.int64 and offsets.ndim == 1 and len(offsets) > 0
        if not whole or offsets[0] != 0 or not _rising(offsets):
            raise UserError(f"{offsets_path}: damaged: not a rising list of offsets")
        if offsets[-1] != size:
            raise UserError(f"{bytes_path}: damaged: {size} bytes where {offsets[-1]} should be")
        # an empty file can't be mapped; a plain array on the map slices much faster than a memmap
        data = np.asarray(np.memmap(bytes_path, np.uint8, "r")) if size else np.zeros(0, np.uint8)
        truth_path = folder / "truth.npy"
        truth = np.asarray(load_array(truth_path, "r")) if truth_path.exists() else None
        if truth is not None and (truth.shape != (size,) or truth.dtype != np.uint8):
            raise UserError(f"{truth_path}: damaged: not one uint8 for each of {size} bytes")
        return cls(folder, data, offsets, truth)

    def first_names(self, count: int) -> list[str]:
        """The first names, without reading the others (SplitWriter writes a name a line)."""
        with open(self.folder / "names.json", encoding="utf-8") as file:
            lines = list(islice(file, 1, count + 1))
        return [json.loads(line.rstrip(",\n")) for line in lines if line != "]\n"]

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
        with open(self.folder / "bytes.bin", "rb") as file:
            while piece := file.read(PIECE):
                digest.update(piece)
        self.update_digest(digest)
        return digest.hexdigest()

    def update_digest(self, digest) -> None:
        """Add offsets and truth to a digest of the bytes."""
        for part in (self.offsets, self.truth):
            for start in range(0, 0 if part is None else len(part), PIECE):
                digest.update(np.ascontiguousarray(part[start : start + PIECE]))


def _rising(offsets: np.ndarray) -> bool:
    """No offset is below the one before; a piece at a time."""
    pieces = (offsets[start : start + PIECE + 1] for start in range(0, len(offsets), PIECE))
    rising = all((piece[1:] >= piece[:-1]).all() for piece in pieces)
    release(offsets)
    return rising


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


def load_array(path: Path, mmap_mode: str | None = None) -> np.ndarray:
    """np.load, with a message that names the file."""
    try:
        return np.load(path, mmap_mode=mmap_mode)
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"{path}: missing or damaged: {error}") from None


class SplitWriter:
    """Write a split's folder, one document at a time; close() syncs it to disk.

    Args:
        folder: made here.
        documents, size: how many there will be, and their bytes in all.
        with_truth: whether they carry boundaries.
    """

    def __init__(self, folder: Path, documents: int, size: int, with_truth: bool):
        folder.mkdir(parents=True)
        self.folder, self.documents, self.bytes = folder, 0, 0
        self._digest = hashlib.sha256()
        self._offsets = npy_file(folder / "offsets.npy", np.int64, documents + 1)
        self._offsets.write(np.int64(0).tobytes())
        self._truth = npy_file(folder / "truth.npy", np.uint8, size) if with_truth else None
        self._data = open(folder / "bytes.bin", "wb", buffering=1 << 20)  # noqa: SIM115
        self._names = open(folder / "names.json", "w", encoding="utf-8")  # noqa: SIM115

    def add(self, document: Document) -> None:
        self._data.write(document.data)
        self._digest.update(document.data)
        if self._truth is not None:
            self._truth.write(document.truth.tobytes())
        self._names.write(("[\n" if self.documents == 0 else ",\n") + json.dumps(document.name))
        self.documents += 1
        self.bytes += len(document.data)
        self._offsets.write(np.int64(self.bytes).tobytes())

    def abort(self) -> None:
        """Close the files of a split that isn't finished."""
        for file in (self._offsets, self._truth, self._data, self._names):
            if file is not None:
                file.close()

    def close(self) -> dict:
        """Sync; what the manifest says of the split: documents, bytes and ByteStore.sha256()."""
        self._names.write("\n]\n" if self.documents else "[]\n")
        self.abort()
        for path in self.folder.iterdir():
            with open(path, "rb") as file:
                os.fsync(file.fileno())
        store = ByteStore.open(self.folder)
        store.update_digest(self._digest)
        return {
            "documents": self.documents,
            "bytes": self.bytes,
            "sha256": self._digest.hexdigest(),
        }


def npy_file(path: Path, dtype, length: int):
    """A file for `length` numbers that are written one after the other, with its .npy header.

    Not a mapping: on a full disk that would end the process by a signal, without a word.
    """
    file = open(path, "wb", buffering=1 << 20)  # noqa: SIM115
    header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": (length,)}
    np.lib.format.write_array_header_1_0(file, header)
    return file
