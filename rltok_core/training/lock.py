"""One writer a run folder: an flock on FOLDER/lock, whose text says who holds it.

The kernel (or the file server) drops the lock when its process dies, so a lock can't outlive its
holder; the text that a killed holder leaves is what the takeover note is made of. The file itself
is never removed, so no two processes can lock two different files of that name. Where the locks of
a file system don't reach from node to node, the holder's SLURM job is asked after as well.
"""

import errno
import fcntl
import json
import os
import socket
import sys
from contextlib import contextmanager
from pathlib import Path

from rltok_core import slurm
from rltok_core.errors import EXIT_LOCKED, UserError


def _holder(text: str) -> str:
    try:
        who = json.loads(text)
    except ValueError:  # the holder is between locking and writing its name
        return "a process that has not written its name yet"
    job = f", SLURM job {who['slurm_job']}" if who["slurm_job"] else ""
    return f"pid {who['pid']} on {who['host']}{job}"


def _held_elsewhere(text: str) -> bool:
    """Whether another host's lock, which the kernel here may know nothing of, is a living job's."""
    try:
        who = json.loads(text)
    except ValueError:  # killed between locking and writing its name
        return False
    job = who["slurm_job"]
    if not job or who["host"] == socket.gethostname() or job == slurm.job_id():
        return False  # a job that SLURM has put back into the queue finds its own earlier name
    return slurm.is_alive(job)


@contextmanager
def run_lock(folder: Path):
    """Hold the run folder for the length of the block.

    Raises:
        UserError: another process holds it (named; code EXIT_LOCKED), or the file system of the
            folder has no locks.
    """
    path = folder / "lock"

    def refuse(text: str) -> UserError:
        message = f"{folder}: another process is writing here: {_holder(text)} ({path})"
        return UserError(message, EXIT_LOCKED)

    with open(path, "a+", encoding="utf-8") as file:
        file.seek(0)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise refuse(file.read()) from None
            raise UserError(
                f"{path}: can't be locked ({error.strerror}); put the results on a file system "
                "that has flock"
            ) from None
        left = file.read()
        if _held_elsewhere(left):
            raise refuse(left)
        if left:
            print(
                f"rltok train: note: took over the lock of {_holder(left)}, which is gone",
                file=sys.stderr,
            )
        who = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "slurm_job": slurm.job_id(),
        }
        file.truncate(0)
        file.write(json.dumps(who))
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)
            file.flush()
