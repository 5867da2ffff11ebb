"""metrics.jsonl: one strict JSON object a line, flushed as it is written, each step once."""

import json
import os
from pathlib import Path
from typing import Any

from rltok_core.errors import UserError
from rltok_core.files import FULL, write_whole


class MetricLog:
    """The metric file of a run, cut back to the step that training goes on from.

    Args:
        path: the file; made where it is missing.
        step: lines of later steps (and a torn last line) are dropped: they will come again.
    """

    def __init__(self, path: Path, step: int):
        self.path = path
        lines = path.read_bytes().split(b"\n") if path.is_file() else []
        # what follows the last newline was being written when the process died
        kept = [line for i, line in enumerate(lines[:-1]) if self._step(line, i + 1) <= step]
        write_whole(path, b"".join(line + b"\n" for line in kept))
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115 (closed by close)

    def _step(self, line: bytes, number: int) -> int:
        try:
            return json.loads(line)["step"]
        except (ValueError, KeyError, TypeError):
            raise UserError(
                f"{self.path}: line {number} is damaged; mend it or remove the run folder"
            ) from None

    def append(self, values: dict[str, Any]) -> None:
        """Raises ValueError for a value that isn't finite, UserError on a full disk."""
        try:
            self._file.write(json.dumps(values, allow_nan=False) + "\n")
            self._file.flush()
        except OSError as error:
            if error.errno in FULL:
                raise UserError(
                    f"{self.path}: not written, {error.strerror}; the checkpoints are kept. "
                    "Free some space and run the same command again"
                ) from None
            raise

    def sync(self) -> None:
        """Before a checkpoint: what it stands on must not be lost where it is kept."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()
