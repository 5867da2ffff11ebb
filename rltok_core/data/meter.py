"""The progress of a build on stderr: share, bytes, documents and rate."""

import sys
import time
from collections.abc import Callable

BAR = 20  # characters
ON_SCREEN, IN_A_LOG = 0.5, 30.0  # seconds between two lines


class Meter:
    """Count documents and bytes; on a terminal a bar that moves, in a log a line now and then.

    Args:
        title: what is being done.
        total, done: bytes in all (0: unknown), and a function that says how many are behind us;
            by default the bytes that were added.
    """

    def __init__(self, title: str, total: int = 0, done: Callable[[], int] | None = None):
        self._title, self._total, self._done = title, total, done
        self._documents = self._bytes = 0
        self._start = self._shown = time.monotonic()
        self._screen = sys.stderr.isatty()

    def add(self, documents: int, size: int) -> None:
        self._documents += documents
        self._bytes += size
        now = time.monotonic()
        if now - self._shown >= (ON_SCREEN if self._screen else IN_A_LOG):
            self._shown = now
            print(self._line(now), end="\r" if self._screen else "\n", file=sys.stderr, flush=True)

    def end(self) -> None:
        """The last line, if there was any."""
        if self._shown > self._start:
            print(self._line(time.monotonic()), file=sys.stderr, flush=True)

    def _line(self, now: float) -> str:
        rate = self._bytes / 1e6 / max(now - self._start, 1e-9)
        text = f"{self._bytes / 1e6:,.0f} MB  {self._documents:,} documents  {rate:.0f} MB/s"
        if not self._total:
            return f"{self._title}  {text}"
        share = min(1.0, (self._done() if self._done else self._bytes) / self._total)
        bar = ("#" * int(share * BAR)).ljust(BAR, ".")
        return f"{self._title}  [{bar}] {share:4.0%}  {text}"
