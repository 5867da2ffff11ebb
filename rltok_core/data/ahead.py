"""One item ahead: while step s is used, a thread makes the item of step s + 1.

What is made is a function of the step alone (data/batches.py), so nothing depends on the thread's
pace, and a run that goes on from any step asks for that step's item and gets it.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")


class Ahead(Generic[T]):
    """Items of steps 0 .. stop - 1, usually asked for in order.

    Args:
        make: the item of a step; called in the thread. What it raises is raised by get().
        stop: there is none of this step or of later ones.
    """

    def __init__(self, make: Callable[[int], T], stop: int):
        self._make, self._stop = make, stop
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="rltok-data")
        self._next: tuple[int, Future[T]] | None = None

    def get(self, step: int) -> T:
        """The item of `step`; the next one is begun."""
        if self._next is not None and self._next[0] == step:
            item = self._next[1].result()
        else:
            item = self._pool.submit(self._make, step).result()
        self._next = None
        if step + 1 < self._stop:
            self._next = step + 1, self._pool.submit(self._make, step + 1)
        return item

    def close(self) -> None:
        """End the thread; an item that is being made is waited for."""
        self._pool.shutdown(cancel_futures=True)
