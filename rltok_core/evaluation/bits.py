"""Bits per byte: summed nats (float64) over ln 2 x an integer number of RAW bytes.

Never summed in low precision, never divided by a decoded string's length, and the mean over
documents only ever appears under its own name (cases K19, K21). Sums use math.fsum, exact up to
one rounding a window.
"""

import math
from dataclasses import dataclass, field

import numpy as np

LN2 = math.log(2.0)
# nats: a larger change of a byte's log-probability by a later byte is a leak. Far above float64's
# rounding, far below what knowing a byte is worth.
LEAK = 1e-6


def bits_per_byte(nats: float, n_bytes: int) -> float:
    """nats / (ln 2 x n_bytes).

    Args:
        nats: minus the summed natural log-probability of the bytes.
        n_bytes: how many raw bytes that was; an integer, at least 1.

    Raises:
        ValueError: n_bytes isn't a positive integer, or nats isn't finite.
    """
    if not isinstance(n_bytes, (int, np.integer)) or isinstance(n_bytes, bool) or n_bytes < 1:
        raise ValueError(f"bits per byte needs a positive whole number of bytes, got {n_bytes!r}")
    if not math.isfinite(nats):
        raise ValueError(f"bits per byte of a log-likelihood that is not finite: {nats!r}")
    return float(nats) / (LN2 * int(n_bytes))


@dataclass
class DocumentScore:
    """What one document's windows add up to.

    Attributes:
        n_bytes: raw bytes scored (a byte is scored once; windows don't overlap).
        windows: how many windows they came in.
        boundaries: boundaries on valid positions, bos and the forced ends included.
        nats, nats_early: minus the log-likelihood by the final head and by the early exit.
    """

    n_bytes: int = 0
    windows: int = 0
    boundaries: int = 0
    nats: float = 0.0
    nats_early: float = 0.0

    def add(self, nats, nats_early, boundaries: int) -> None:
        """Add one window: nats and nats_early one value a byte, any float dtype."""
        self.n_bytes += len(nats)
        self.windows += 1
        self.boundaries += int(boundaries)
        self.nats = math.fsum([self.nats, *np.asarray(nats, dtype=np.float64)])
        self.nats_early = math.fsum([self.nats_early, *np.asarray(nats_early, dtype=np.float64)])

    @property
    def bits(self) -> float:
        return self.nats / LN2

    @property
    def bits_early(self) -> float:
        return self.nats_early / LN2


@dataclass
class CorpusScore:
    """The scores of documents by their index, and the figures that a corpus gets from them."""

    documents: dict[int, DocumentScore] = field(default_factory=dict)

    def document(self, index: int) -> DocumentScore:
        return self.documents.setdefault(index, DocumentScore())

    def in_order(self) -> list[tuple[int, DocumentScore]]:
        """(index, score) in the order of the split, whatever order they were scored in."""
        return sorted(self.documents.items())

    @property
    def n_bytes(self) -> int:
        return sum(score.n_bytes for score in self.documents.values())

    @property
    def bpb(self) -> float:
        """Corpus bits per byte of the final head: all bits over all bytes."""
        return bits_per_byte(math.fsum(s.nats for s in self.documents.values()), self.n_bytes)

    @property
    def bpb_early(self) -> float:
        """Corpus bits per byte of the early exit."""
        return bits_per_byte(math.fsum(s.nats_early for s in self.documents.values()), self.n_bytes)

    @property
    def bpb_mean_documents(self) -> float:
        """Mean over documents of each one's own bits per byte: every document weighs the same."""
        each = [bits_per_byte(score.nats, score.n_bytes) for score in self.documents.values()]
        return math.fsum(each) / len(each)
