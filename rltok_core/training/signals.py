"""Being asked to stop: SIGTERM, SIGUSR1 (SLURM's warning) and Ctrl-C set a flag, nothing more.

Whoever loops looks at `stop.asked` between steps, saves, and leaves with EXIT_REQUEUE (promise 4).
A second Ctrl-C ends the process at once.
"""

import signal

from rltok_core.errors import EXIT_REQUEUE, UserError


class StopSignals:
    """Context manager: `asked` is the name of the signal that came, or None."""

    SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)

    def __init__(self):
        self.asked: str | None = None

    def _handle(self, number, frame):
        self.asked = signal.Signals(number).name
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def check(self) -> None:
        """For work that keeps nothing halfway. Raises UserError if a signal has come."""
        if self.asked:
            raise UserError(f"stopped by {self.asked}; nothing written", EXIT_REQUEUE)

    def __enter__(self) -> "StopSignals":
        self._before = {number: signal.signal(number, self._handle) for number in self.SIGNALS}
        return self

    def __exit__(self, *exception) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
