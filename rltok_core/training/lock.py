"""One writer a run folder: an flock on FOLDER/lock, whose text says who holds it.

The kernel (or the file server) drops the lock when its process dies, so a lock can't outlive its
holder; the text that a killed holder leaves is what the takeover note is made of. The file itself
is never removed, so no two processes can lock two different files of that name.
"""

import errno
import fcntl
import json
import os
import socket
import sys
from contextlib import contextmanager
from pathlib import Path

from rltok_core.errors import EXIT_LOCKED, UserError


def _holder(text: str) -> str:
    try:
        who = json.loads(text)
    except ValueError:  # the holder is between locking and writing its name
        return "a process that has not written its name yet"
    job = f", SLURM job {who['slurm_job']}" if who["slurm_job"] else ""
    return f"pid {who['pid']} on {who['host']}{job}"


@contextmanager
def run_lock(folder: Path):
    """Hold the run folder for the length of the block.

    Raises:
        UserError: another process holds it (named; code EXIT_LOCKED), or the file system of the
            folder has no locks.
    """
    path = folder / "lock"
    with open(path, "a+", encoding="utf-8") as file:
        file.seek(0)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise UserError(
                    f"{folder}: another process is writing here: {_holder(file.read())} ({path})",
                    EXIT_LOCKED,
                ) from None
            raise UserError(
                f"{path}: can't be locked ({error.strerror}); put the results on a file system "
                "that has flock"
            ) from None
        left = file.read()
        if left:
            print(
                f"rltok train: note: took over the lock of {_holder(left)}, which is gone",
                file=sys.stderr,
            )
        who = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "slurm_job": os.environ.get("SLURM_JOB_ID"),
        }
        file.truncate(0)
        file.write(json.dumps(who))
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)
            file.flush()
