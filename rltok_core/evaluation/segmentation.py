"""How boundaries compare with a reference, with whitespace, and how long tokens are.

Everything is counted window by window on plain arrays. A window of n bytes is n + 1 positions
(bos first); a boundary at position j + 1 is "on byte j", and `boundary` below is always the bool
array of the n bytes, so that bos's own forced boundary is never in it. The boundary on the last
byte of a window is forced too: it says nothing about the method, so it is left out of both sides
of every comparison (byte n - 1 is scored neither as found nor as missed).
"""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from rltok_core.data import vocabulary

WHITESPACE = np.isin(np.arange(vocabulary.N_BYTES), list(vocabulary.WHITESPACE))  # one a byte value


def word_starts(window: np.ndarray) -> np.ndarray:
    """bool, one a byte: a byte that isn't whitespace right after one that is.

    The window's first byte is none: what starts there has bos's forced boundary already.
    """
    space = WHITESPACE[window]
    starts = np.zeros(len(window), dtype=bool)
    starts[1:] = space[:-1] & ~space[1:]
    return starts


def matches(predicted: np.ndarray, reference: np.ndarray, tolerance: int) -> int:
    """Size of the largest one-to-one matching of predicted boundaries with reference ones.

    A predicted boundary on byte q may stand for a reference on byte r if 0 <= q - r <= tolerance
    (late, never early). One predicted boundary stands for one reference at most and the other way
    round, so tolerance can't turn a crowd of boundaries into precision, nor one boundary into the
    recall of two. Taking the earliest free one each time is optimal, as all the ranges have the
    same length (Glover 1967).

    Args:
        predicted, reference: bool (n,).
        tolerance: bytes, at least 0.
    """
    if tolerance == 0:
        return int(np.count_nonzero(predicted & reference))
    found, waiting = 0, np.flatnonzero(reference).tolist()
    first = 0
    for q in np.flatnonzero(predicted).tolist():
        while first < len(waiting) and waiting[first] < q - tolerance:
            first += 1
        if first < len(waiting) and waiting[first] <= q:
            found += 1
            first += 1
    return found


@dataclass
class Agreement:
    """Precision, recall and F1 of boundaries, summed over windows before any division."""

    tolerance: int = 0
    positions: int = 0
    predicted: int = 0
    reference: int = 0
    matched: int = 0

    def add(self, boundary: np.ndarray, reference: np.ndarray) -> None:
        """Add one window: bool (n,) each; the last byte's forced boundary is left out of both."""
        boundary, reference = boundary[:-1].astype(bool), reference[:-1].astype(bool)
        self.positions += len(boundary)
        self.predicted += int(np.count_nonzero(boundary))
        self.reference += int(np.count_nonzero(reference))
        self.matched += matches(boundary, reference, self.tolerance)

    def scores(self) -> dict[str, float | None]:
        """{"p", "r", "f1"}: None where there is nothing to divide by.

        Without any reference boundary there is nothing to find, so f1 is None too, not 0.
        """

        def ratio(top: int, bottom: int) -> float | None:
            return top / bottom if bottom else None

        return {
            "p": ratio(self.matched, self.predicted),
            "r": ratio(self.matched, self.reference),
            "f1": ratio(2 * self.matched, self.reference and self.predicted + self.reference),
        }

    @property
    def chance(self) -> float | None:
        """The precision of boundaries strewn at random: references a position that isn't forced."""
        return self.reference / self.positions if self.positions else None


@dataclass
class WhitespaceShare:
    """Share of whitespace bytes with a boundary on them or on the byte just after.

    Only bytes count for which neither place is a forced end. Chance is what boundaries strewn
    independently at the run's own rate would get, 1 - (1 - rate)^2, where rate is that of the
    positions that aren't forced: the share has no forced boundary in it either.
    """

    whitespace: int = 0
    marked: int = 0
    free: int = 0
    free_boundaries: int = 0

    def add(self, window: np.ndarray, boundary: np.ndarray) -> None:
        """Add one window: its bytes, uint8 (n,), and the boundaries on them, bool (n,)."""
        boundary = boundary[:-1].astype(bool)
        self.free += len(boundary)
        self.free_boundaries += int(np.count_nonzero(boundary))
        space = WHITESPACE[window[: max(0, len(boundary) - 1)]]
        self.whitespace += int(np.count_nonzero(space))
        self.marked += int(np.count_nonzero(space & (boundary[:-1] | boundary[1:])))

    @property
    def rate(self) -> float | None:
        """Boundaries per position that isn't forced; None where there is no such position."""
        return self.free_boundaries / self.free if self.free else None

    @property
    def share(self) -> float | None:
        return self.marked / self.whitespace if self.whitespace else None

    @property
    def chance(self) -> float | None:
        return None if self.rate is None else 1.0 - (1.0 - self.rate) ** 2


@dataclass
class TokenLengths:
    """How many bytes tokens hold; a token that holds no byte (bos alone) isn't counted.

    A token runs from its boundary to the byte before the next one, or to the window's end. The
    bytes before the first boundary on a byte belong to bos's token, which counts if there are
    any. So every byte lies in exactly one counted token, the mean is bytes / tokens, and a
    boundary on every byte is exactly 1.0 (case K13).
    """

    counts: Counter = field(default_factory=Counter)

    def add(self, boundary: np.ndarray) -> None:
        """Add one window: bool (n,), the boundaries on its bytes, the forced last one included."""
        edges = np.concatenate([[0], np.flatnonzero(boundary), [len(boundary)]])
        length = np.diff(edges)
        self.counts.update(length[length > 0].tolist())

    @property
    def mean(self) -> float:
        """Bytes per token. Raises ZeroDivisionError if nothing was added."""
        return sum(k * v for k, v in self.counts.items()) / sum(self.counts.values())

    @property
    def entropy(self) -> float:
        """Bits: of the distribution of lengths."""
        share = np.array(list(self.counts.values())) / self.counts.total()
        return float(-(share * np.log2(share)).sum()) + 0.0
