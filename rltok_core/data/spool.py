"""Documents on their way to the store, on disk: what stays in memory is 40 bytes a document.

A document's key is a hash of its bytes, keyed by the split's seed. It does three things: equal
keys are exact duplicates; the order of keys is the seeded shuffle; and since it looks at nothing
else, neither depends on the number or the order of the input files.
"""

import hashlib
from array import array
from pathlib import Path

import numpy as np

from rltok_core.data.documents import Document

KEY_BYTES = 16
DECLARED = (None, "test", "validation")  # codes of Document.split


class Spool:
    """Append documents, then read them back in any order.

    Args:
        folder: where the spool's files go; the caller removes it.
        seed: of the shuffle.
    """

    def __init__(self, folder: Path, seed: int):
        folder.mkdir(parents=True)
        self._salt = str(seed).encode()
        self._paths = {part: folder / part for part in ("bytes", "names", "truth")}
        self._files = {part: open(path, "wb") for part, path in self._paths.items()}  # noqa: SIM115
        self._sizes, self._name_sizes = array("q"), array("q")
        self._keys, self._declared = bytearray(), bytearray()
        self.total_bytes = 0
        self.with_truth = False

    def __len__(self) -> int:
        return len(self._sizes)

    def add(self, document: Document) -> None:
        name = document.name.encode("utf-8", "surrogateescape")
        self._files["bytes"].write(document.data)
        self._files["names"].write(name)
        if document.truth is not None:
            self._files["truth"].write(document.truth)
            self.with_truth = True
        self._sizes.append(len(document.data))
        self._name_sizes.append(len(name))
        self._keys += hashlib.blake2b(document.data, digest_size=KEY_BYTES, key=self._salt).digest()
        self._declared.append(DECLARED.index(document.split))
        self.total_bytes += len(document.data)

    def close(self) -> None:
        """End of writing (may be called twice)."""
        for file in self._files.values():
            file.close()

    @property
    def sizes(self) -> np.ndarray:
        """int64: bytes of each document, in the order of adding."""
        return np.frombuffer(self._sizes, np.int64)

    def declared(self, split: str) -> np.ndarray:
        """bool: documents whose source declares this split."""
        return np.frombuffer(self._declared, np.uint8) == DECLARED.index(split)

    def shuffled(self) -> np.ndarray:
        """Document numbers in the order of their keys; of exact duplicates the first added."""
        key_N2 = np.frombuffer(self._keys, ">u8").reshape(-1, 2)
        order = np.lexsort((key_N2[:, 1], key_N2[:, 0]))  # stable
        sorted_N2 = key_N2[order]
        first = np.ones(len(order), dtype=bool)
        first[1:] = (sorted_N2[1:] != sorted_N2[:-1]).any(1)
        return order[first]

    def read(self, numbers: np.ndarray):
        """The documents of these numbers, one after the other."""
        ends, name_ends = np.cumsum(self.sizes), np.cumsum(np.frombuffer(self._name_sizes, "q"))
        maps = {
            part: np.asarray(np.memmap(path, np.uint8, "r"))  # plain arrays slice much faster
            for part, path in self._paths.items()
            if path.stat().st_size
        }
        for number in numbers:
            part = slice(ends[number] - self._sizes[number], ends[number])
            name = slice(name_ends[number] - self._name_sizes[number], name_ends[number])
            truth = maps["truth"][part] if self.with_truth else None
            yield Document(
                maps["names"][name].tobytes().decode("utf-8", "surrogateescape"),
                maps["bytes"][part].tobytes(),
                truth,
            )
