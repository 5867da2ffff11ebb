"""A corpus in parts: each is read, filtered and sorted by itself, and kept until all are joined.

A shard is some 64 MB of the user's files, a part of a hub dataset, or all of a packaged or planted
corpus. What is made of it lies in a folder of its own with a key: a hash of the content it was
read from and of every option that decides what is kept. So a build that was killed goes on with
the shards that are missing, and a changed input or option makes its own shards anew.
"""

import json
import os
import shutil
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rltok_core.config.schema import DataConfig
from rltok_core.config.strict import digest
from rltok_core.data.checksums import Checksums
from rltok_core.data.documents import MAX_DOCUMENT, TOO_LARGE, Document, Log
from rltok_core.data.files import Input, inputs_of, read_files
from rltok_core.data.hub import commit_of, local_files, read_hub
from rltok_core.data.meter import Meter
from rltok_core.data.packaged import read_code, read_prose
from rltok_core.data.planted import read_planted
from rltok_core.data.runs import Sorter
from rltok_core.data.scripts import read_script
from rltok_core.errors import UserError
from rltok_core.files import write_json

SHARD_BYTES = 1 << 26  # of the user's files, as they lie on disk
FORMAT = 2  # of shards and manifests; a change of what is stored makes everything anew
DROPPED = ("too_short", "empty", "null", "duplicate")
COUNTS = ("read", "kept", *DROPPED)  # read is the sum of the others
NOTES = ("whitespace_only", "invalid_utf8")  # of documents that were kept or are duplicates
WHOLE = {  # sources of one shard, which are small and read anew each time
    "packaged_prose": read_prose,
    "packaged_code": read_code,
    "packaged_script": read_script,
    "planted": read_planted,
}


@dataclass(frozen=True)
class Shard:
    """A part of a corpus: the `index`-th of `of`, and the local files it is read from."""

    index: int
    of: int
    files: tuple[Input, ...] = ()

    @property
    def name(self) -> str:
        """For messages: its number, and its files where they are few."""
        names = ", ".join(file.path for file in self.files[:2])
        more = f" and {len(self.files) - 2} more" if len(self.files) > 2 else ""
        return f"shard {self.index} of {self.of}" + (f" ({names}{more})" if names else "")


@dataclass(frozen=True)
class Limit:
    """How much more is read; None: all."""

    documents: int | None
    bytes: int | None

    @classmethod
    def of(cls, source) -> "Limit":
        return cls(
            getattr(source, "max_documents", 0) or None, getattr(source, "max_bytes", 0) or None
        )

    def reached(self, documents: int, size: int) -> bool:
        enough = self.documents is not None and documents >= self.documents
        return enough or (self.bytes is not None and size >= self.bytes)

    def less(self, documents: int, size: int) -> "Limit":
        return Limit(
            None if self.documents is None else self.documents - documents,
            None if self.bytes is None else self.bytes - size,
        )


def shards_of(source) -> list[Shard]:
    """The parts that a corpus is read in, in order.

    Raises:
        UserError: a path or glob names no file.
    """
    if source.kind == "hub":
        files = tuple(local_files(source))
        return [Shard(i, source.shards, files) for i in range(source.shards)]
    if source.kind != "files":
        return [Shard(0, 1)]
    groups: list[list[Input]] = [[]]
    size = 0
    for file in inputs_of(source):
        if size >= SHARD_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += file.bytes
    return [Shard(i, len(groups), tuple(group)) for i, group in enumerate(groups)]


def is_parallel(source) -> bool:
    """Whether shards may be made at the same time: with a limit, each begins where one ends."""
    return Limit.of(source) == Limit(None, None)


class Workshop:
    """Where the shards of one data folder are made.

    Args:
        config: of the corpus.
        out: the data folder; shards lie in .NAME.shards beside it.
    """

    def __init__(self, config: DataConfig, out: Path):
        self.config, self.out = config, Path(out)
        self.folder = self.out.parent / f".{self.out.name}.shards"
        self.checksums = Checksums(memo_of(self.out) if config.source.kind != "planted" else None)
        self.shards = shards_of(config.source)
        self._commit: str | None = None

    @property
    def commit(self) -> str | None:
        """The commit of a hub dataset, one and the same for all shards; else None."""
        source = self.config.source
        if source.kind != "hub" or local_files(source):
            return None
        if self._commit is None:
            self._commit = source.revision if _is_commit(source.revision) else self._agreed(source)
        return self._commit

    def _agreed(self, source) -> str:
        """The first shard to ask writes the commit down for the others."""
        path = self.folder / "commit"
        if not path.is_file():
            self.folder.mkdir(parents=True, exist_ok=True)
            aside = self.folder / f"commit.{maker()}"
            aside.write_text(commit_of(source), encoding="utf-8")
            try:
                os.link(aside, path)
            except FileExistsError:
                pass  # another shard was faster: its answer counts
            finally:
                aside.unlink()
        return path.read_text(encoding="utf-8")

    def make(self, index: int, limit: Limit | None = None) -> dict:
        """Make one shard, unless it is there; what its shard.json says.

        Args:
            index: which, from 0.
            limit: what is left of the source's; by default all of it.

        Raises:
            UserError: no such shard, or bad input; the message names the shard.
        """
        if not 0 <= index < len(self.shards):
            raise UserError(
                f"{self.config.name}: no shard {index}: there are {len(self.shards)}, from 0"
            )
        shard = self.shards[index]
        limit = limit or Limit.of(self.config.source)
        try:
            key = self._key(shard, limit)
            target = self.folder / f"{index:05d}"
            found = _read(target / "shard.json")
            if found is not None and found["key"] == key is not None:
                return found
            summary = self._make(shard, limit, key, target)
        except UserError as error:
            if len(self.shards) == 1:
                raise
            raise UserError(f"{shard.name}: {error}", error.code) from error
        self.checksums.save()
        return summary

    def _key(self, shard: Shard, limit: Limit) -> str | None:
        """What decides the shard's documents, hashed; None if only reading it can tell."""
        config = self.config
        if config.source.kind in WHOLE:
            return None
        settings = config.source.model_dump(mode="json")
        for name in ("paths", "validation_paths", "test_paths", "sha256", "data_files"):
            settings.pop(name, None)
        for file in shard.files:
            if not Path(file.path).is_file():
                raise UserError(f"{file.path}: no such file any more")
        return digest(
            {
                "format": FORMAT,
                "settings": settings,
                "part": [shard.index, shard.of] if config.source.kind == "hub" else None,
                "min_bytes": config.min_bytes,
                "seed": config.split.seed,
                "limit": [limit.documents, limit.bytes],
                "commit": self.commit,
                "files": [
                    [file.path, file.split, self.checksums.sha256(file.path)]
                    for file in shard.files
                ],
            }
        )

    def _make(self, shard: Shard, limit: Limit, key: str | None, target: Path) -> dict:
        aside = self.folder / f".{target.name}.building-{maker()}"
        remove_dead(self.folder, f".{target.name}.building-")
        log = Log()
        try:
            aside.mkdir(parents=True)
            sorter = Sorter(aside / "sorting", self.config.split.seed)
            size = sum(file.bytes for file in shard.files)
            meter = Meter(f"{self.config.name}: {shard.name}", size, lambda: log.read_bytes)
            counts = self._fill(sorter, self._read(shard, log), limit, log, meter)
            sorter.finish(aside / "run")
            summary = {
                "key": key,
                "documents": sorter.documents,
                "bytes": sorter.bytes,
                "counts": counts,
                "sources": log.sources,
            }
            write_json(aside / "shard.json", summary)
            if target.exists():
                shutil.rmtree(target)
            os.replace(aside, target)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
        return summary

    def _read(self, shard: Shard, log: Log) -> Iterator[Document]:
        source = self.config.source
        if source.kind == "files":
            return read_files(source, log, shard.files, self.checksums)
        if source.kind == "hub":
            return read_hub(source, log, shard.index, self.commit, self.checksums)
        return WHOLE[source.kind](source, log)

    def _fill(
        self, sorter: Sorter, documents: Iterator[Document], limit: Limit, log: Log, meter: Meter
    ) -> dict[str, int]:
        """Filter a shard's documents into the sorter; count what is dropped and what is odd."""
        counts = dict.fromkeys((*COUNTS, *NOTES), 0)
        for document in documents:
            size = len(document.data)
            counts["read"] += 1
            meter.add(1, size)
            if size > MAX_DOCUMENT:
                raise UserError(f"{document.name}: {TOO_LARGE}")
            if not size:
                counts["empty"] += 1
            elif size < self.config.min_bytes:
                counts["too_short"] += 1
            else:
                try:
                    counts["whitespace_only"] += document.data.decode("utf-8").isspace()
                except UnicodeDecodeError:
                    counts["invalid_utf8"] += 1
                sorter.add(document)
            if limit.reached(sorter.documents, sorter.bytes):
                break
        meter.end()
        counts["read"] += log.counts["null"]
        return counts | log.counts

    def unchanged(self, manifest: dict) -> bool:
        """Whether a data folder's manifest says what would be built now."""
        config, source = self.config, self.config.source
        if manifest.get("format") != FORMAT or manifest.get("hash") != config.hash:
            return False
        if source.kind == "planted":
            return True
        if source.kind in WHOLE:
            return False  # their files are read to know
        if source.kind == "hub" and not local_files(source):
            commit = source.revision if _is_commit(source.revision) else commit_of(source)
            return [commit] == [entry["version"] for entry in manifest["sources"]]
        # once each, as in the manifest: a glob may name a declared file too
        paths = list(dict.fromkeys(file.path for shard in self.shards for file in shard.files))
        if not is_parallel(source):  # a limit: what was not reached doesn't count
            paths = paths[: len(manifest["sources"])]
        now = [(path, self.checksums.sha256(path)) for path in paths]
        return now == [(entry["name"], entry["sha256"]) for entry in manifest["sources"]]

    def remove(self) -> None:
        """Remove all shards."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def tidy(self) -> None:
        """Remove the folder if no finished shard is in it."""
        if not list(self.folder.glob("*/shard.json")):
            self.remove()


def _is_commit(revision: str | None) -> bool:
    return bool(revision) and len(revision) == 40 and set(revision) <= set("0123456789abcdef")


def memo_of(out: Path) -> Path:
    """Where the checksums of a data folder's inputs are kept."""
    return out.parent / f".{out.name}.inputs.json"


def _read(path: Path) -> dict | None:
    """A shard.json; None where there is none that is whole."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None


def maker() -> str:
    """This process, as a part of a file's name: host and process id."""
    return f"{socket.gethostname()}-{os.getpid()}"


def remove_dead(folder: Path, prefix: str) -> None:
    """Remove what a killed process of this machine left half-made; a running one's stays."""
    for path in folder.glob(f"{prefix}*"):
        host, _, pid = path.name.removeprefix(prefix).rpartition("-")
        if host != socket.gethostname() or not pid.isdigit():
            continue
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            shutil.rmtree(path, ignore_errors=True)
        except PermissionError:
            pass  # someone else's, and alive
