"""What the user's files hold, read again only where they may have changed.

A file is known by its size, its date, its inode and the date of the last change to any of them
(ctime), which nobody can set: so a file that was rewritten with the same size and date is read
again, and one that was only touched is found to be the same. What is known lies in a small file
beside the data folder; without it, files are read again.

Each file also has an identity, a short text that changes when its content does and at no other
time, and that is known without reading the file for the first time: what Snakemake compares.
"""

import hashlib
import json
import os
import time
from pathlib import Path

RACY = 2.0  # seconds: a file this young may change again without a trace in its dates


class Checksums:
    """sha256 and identity of files.

    Args:
        memo: where to keep them; None: nowhere.
    """

    def __init__(self, memo: Path | None):
        self._memo, self._known = memo, {}
        if memo is not None and memo.is_file():
            try:
                known = json.loads(memo.read_text(encoding="utf-8"))
            except ValueError:
                known = {}  # only a memo: what it said is found again
            if isinstance(known, dict):
                self._known = known

    def sha256(self, path: str) -> str:
        """The sha256 of a file, hex. Raises OSError."""
        return self._entry(path, with_content=True)["sha256"]

    def identity(self, path: str) -> str:
        """A text that stays until the file's content changes. Raises OSError."""
        return self._entry(path, with_content=False)["identity"]

    def _entry(self, path: str, with_content: bool) -> dict:
        stamp = stamp_of(path)
        entry = self._known.get(os.path.abspath(path))
        fresh = entry is not None and entry["stamp"] == stamp
        if fresh and (entry["sha256"] or not with_content):
            return entry
        digest = None
        if with_content or (entry is not None and entry["sha256"]):
            digest = _sha256(path)
        if fresh or (entry is not None and digest is not None and digest == entry["sha256"]):
            identity = entry["identity"]
        else:
            identity = digest or "-".join(map(str, stamp))
        entry = {"stamp": stamp, "sha256": digest, "identity": identity}
        if digest is None or time.time() - stamp[2] / 1e9 > RACY:
            self._known[os.path.abspath(path)] = entry
        return entry

    def save(self) -> None:
        """Write what is known."""
        if self._memo is None or not self._known:
            return
        self._memo.parent.mkdir(parents=True, exist_ok=True)
        aside = self._memo.with_name(f"{self._memo.name}.{os.getpid()}")
        aside.write_text(json.dumps(self._known, indent=0, sort_keys=True), encoding="utf-8")
        os.replace(aside, self._memo)


def stamp_of(path: str) -> list[int]:
    """Size, date, date of the last change of either, and inode of a file, times in ns."""
    stat = os.stat(path)
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]


def _sha256(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
