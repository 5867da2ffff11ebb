"""A document on its way from a source to the byte store, and the log of what a source read.

Policy, the same for every source (docs/data.md): the bytes of a text are stored as they are. A byte
order mark, CR, NUL, Unicode separators and, where the source has bytes (txt, lines, parquet),
invalid UTF-8 are neither changed nor dropped; invalid documents are counted.
"""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

MAX_DOCUMENT = 1 << 27  # bytes: documents are held in memory one by one
TOO_LARGE = (
    f"more than {MAX_DOCUMENT >> 20} MiB, the largest document there can be; cut it, or read it by "
    "lines (format: lines)"
)


@dataclass(frozen=True)
class Document:
    """One document.

    Attributes:
        name: where it came from, for messages.
        data: its raw bytes.
        truth: uint8, one a byte, 1 on the last byte of a code word (the planted language only).
        split: "test" or "validation" where the source declares it, else None.
    """

    name: str
    data: bytes
    truth: np.ndarray | None = None
    split: str | None = None


@dataclass
class Log:
    """What a source reports beside its documents.

    Attributes:
        counts: rows that are no documents, by reason ("null").
        sources: name, version and sha256 of what was read, for the manifest.
        read_bytes: of the files that were read to their end, for the progress line.
    """

    counts: Counter = field(default_factory=Counter)
    sources: list[dict] = field(default_factory=list)
    read_bytes: int = 0
