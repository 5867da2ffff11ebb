"""Files that are whole or absent: written aside, synced, renamed; a full disk is a clear error."""

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rltok_core.errors import UserError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # EFBIG: a limit such as ulimit -f


def sync_folder(folder: Path) -> None:
    """Make the folder's renames survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def written_aside(aside: Path, path: Path) -> Iterator[None]:
    """While `aside` is written, to become `path`: it goes if that fails.

    Raises:
        UserError: the disk (or the quota) is full; what was at `path` before is still there.
    """
    try:
        yield
    except OSError as error:
        aside.unlink(missing_ok=True)
        if error.errno in FULL:
            raise UserError(
                f"{path}: not written, {error.strerror}; nothing that was there before is lost. "
                "Free some space and run the same command again"
            ) from None
        raise


def write_whole(path: Path, data: bytes | memoryview) -> None:
    """Put `data` at `path` so that a reader sees the old file or the new one, never a part.

    Raises:
        UserError: the disk (or the quota) is full; what was at `path` before is still there.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with written_aside(aside, path):
        with open(aside, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
        sync_folder(path.parent)


def remove_leftovers(*folders: Path) -> None:
    """Remove what write_whole had begun when its process was killed. For whoever holds the lock."""
    for folder in folders:
        for aside in folder.glob(".*.tmp"):
            aside.unlink()


def write_json(path: Path, values: dict[str, Any]) -> None:
    """write_whole of strict JSON (no NaN): a value that isn't finite is a ValueError here."""
    write_whole(path, (json.dumps(values, indent=1, allow_nan=False) + "\n").encode())
