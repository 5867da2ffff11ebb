"""The user's own files as documents: txt, lines, jsonl and parquet.

Lines are split at LF alone (b"\\n"): U+2028, VT, FF, NEL and CR stay in the text. See documents.py
for the policy on byte order marks and invalid UTF-8; a byte order mark before the first jsonl row
lies outside of every text and is skipped.
"""

import glob
import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rltok_core.config.sources import FilesSource
from rltok_core.config.strict import nearest
from rltok_core.data.checksums import Checksums, stamp_of
from rltok_core.data.documents import MAX_DOCUMENT, TOO_LARGE, Document, Log
from rltok_core.errors import UserError

PARQUET_BYTES = 1 << 24  # text in memory at once, roughly
PARQUET_ROWS = 512  # and at most so many rows


@dataclass(frozen=True)
class Input:
    """A file to read: its path, the split that the source declares for it, its size in bytes."""

    path: str
    split: str | None
    bytes: int


def inputs_of(source: FilesSource) -> list[Input]:
    """The declared test and validation files, then the others.

    Raises:
        UserError: a path or glob names no file, or a sha256 is declared for none of them.
    """
    declared = {"test": source.test_paths, "validation": source.validation_paths}
    groups = {split: expand(paths) for split, paths in declared.items()}
    groups[None] = expand(source.paths)
    found = [
        Input(path, split, Path(path).stat().st_size)
        for split, paths in groups.items()
        for path in paths
    ]
    _check_hash_keys(source.sha256, [file.path for file in found])
    return found


def read_files(
    source: FilesSource, log: Log, files: tuple[Input, ...], checksums: Checksums
) -> Iterator[Document]:
    """The documents of some of the source's files.

    Raises:
        UserError: a file is missing or unreadable, has another sha256 than declared, changes
            while it is read, or a row holds no text; the message names file, line and field.
    """
    for file in files:
        path = file.path
        try:
            before, digest = stamp_of(path), checksums.sha256(path)
        except OSError as error:
            raise UserError(f"{path}: can't be read: {error.strerror or error}") from error
        want = source.sha256.get(path, source.sha256.get(Path(path).name, digest))
        if digest != want.lower():
            raise UserError(f"{path}: sha256 is {digest}, the configuration says {want}")
        log.sources.append({"name": path, "sha256": digest, "bytes": before[0]})
        for name, data in _rows(path, source):
            if data is None:
                log.counts["null"] += 1
            else:
                yield Document(name, data, split=file.split)
        _check_unchanged(path, before)
        log.read_bytes += file.bytes


def _rows(path: str, source: FilesSource) -> Iterator[tuple[str, bytes | None]]:
    """(name, bytes or None for null) of a file; whatever goes wrong names the file."""
    try:
        yield from _READERS[source.format](path, source.column)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path}: damaged gzip file: {error}") from None
    except OSError as error:  # zstd's and parquet's faults too
        raise UserError(f"{path}: can't be read: {error.strerror or error}") from error


def _check_unchanged(path: str, before: list[int]) -> None:
    try:
        same = stamp_of(path) == before
    except OSError:
        same = False
    if not same:
        raise UserError(f"{path}: changed or vanished while it was read; build again")


def expand(patterns: list[str]) -> list[str]:
    """The files that paths and globs name, each once. Raises UserError if one names none."""
    paths: dict[str, None] = {}
    for pattern in patterns:
        here = [pattern] if Path(pattern).exists() else glob.glob(pattern, recursive=True)
        found = [path for path in sorted(here) if Path(path).is_file()]
        if not found:
            why = "is a folder; name files or a glob" if Path(pattern).is_dir() else "no such file"
            raise UserError(f"{pattern}: {why}")
        paths.update(dict.fromkeys(found))
    return list(paths)


def _check_hash_keys(hashes: dict[str, str], paths: list[str]) -> None:
    known = {*paths, *(Path(path).name for path in paths)}
    for key in hashes:
        if key not in known:
            raise UserError(f"sha256: {key!r} is none of the files{nearest(key, list(known))}")


def _open(path: str) -> io.BufferedIOBase:
    """A file's bytes, decompressed as its name says (.gz, .zst)."""
    if path.endswith(".gz"):
        return gzip.open(path, "rb")
    if path.endswith(".zst"):
        import pyarrow

        # unlike the usual package's, this stream refuses a file that was cut
        stream = pyarrow.CompressedInputStream(pyarrow.OSFile(path), "zstd")
        return io.BufferedReader(stream, 1 << 20)
    return open(path, "rb")


def _lines_of(file: io.BufferedIOBase, path: str) -> Iterator[tuple[int, bytes]]:
    """(number from 1, line with its LF); never more than the largest document in memory."""
    number = 0
    while line := file.readline(MAX_DOCUMENT + 2):
        number += 1
        if len(line) > MAX_DOCUMENT + 1:
            raise UserError(f"{path}: line {number}: {TOO_LARGE}")
        yield number, line


def _txt(path: str, column: str) -> Iterator[tuple[str, bytes]]:
    with _open(path) as file:
        data = file.read(MAX_DOCUMENT + 1)
    if len(data) > MAX_DOCUMENT:
        raise UserError(f"{path}: {TOO_LARGE}")
    yield path, data


def _lines(path: str, column: str) -> Iterator[tuple[str, bytes]]:
    with _open(path) as file:
        for number, line in _lines_of(file, path):
            yield f"{path}:{number}", line.removesuffix(b"\n")


def _jsonl(path: str, column: str) -> Iterator[tuple[str, bytes | None]]:
    with _open(path) as file:
        for number, line in _lines_of(file, path):
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            where = f"{path}: line {number}"
            try:
                row = json.loads(line.decode("utf-8"))
            except UnicodeDecodeError as error:
                raise UserError(f"{where}: not valid UTF-8 at byte {error.start}") from None
            except (ValueError, RecursionError) as error:
                raise UserError(f"{where}: not valid JSON: {error}") from None
            if not isinstance(row, dict):
                raise UserError(f"{where}: expected an object, got {type(row).__name__}")
            yield f"{path}:{number}", text_of(row, column, where)


def text_of(row: dict, column: str, where: str) -> bytes | None:
    """The UTF-8 bytes of a row's text field, None for null.

    Raises:
        UserError: no such field (the valid ones are named), not text, or half a surrogate pair.
    """
    if column not in row:
        raise UserError(f"{where}: no field {column!r}{nearest(column, list(row))}")
    value = row[column]
    if value is None:
        return None
    if not isinstance(value, str):
        raise UserError(f"{where}: field {column!r} is {type(value).__name__}, not text")
    try:
        return value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UserError(f"{where}: field {column!r} is not valid Unicode: {error}") from None


def _parquet(path: str, column: str) -> Iterator[tuple[str, bytes | None]]:
    import pyarrow
    import pyarrow.parquet

    try:
        # buffered, and by batches: a row group's text isn't held as a whole
        with pyarrow.parquet.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False) as file:
            schema = file.schema_arrow
            if column not in schema.names:
                raise UserError(f"{path}: no column {column!r}{nearest(column, schema.names)}")
            number = 0
            check_text(schema.field(column).type, path, column)
            for batch in file.iter_batches(_batch_rows(file), columns=[column]):
                for value in texts_of(batch.column(0), path, column):
                    yield f"{path}:row {number}", value
                    number += 1
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:  # the latter from its schema
        raise UserError(f"{path}: not a readable parquet file: {error}") from None


def check_text(kind, where: str, column: str) -> None:
    """Raises UserError if an Arrow type holds no text."""
    import pyarrow

    if pyarrow.types.is_dictionary(kind):
        kind = kind.value_type
    if not str(kind).removeprefix("large_").startswith(("string", "binary", "null")):
        raise UserError(f"{where}: column {column!r} is {kind}, not text")


def texts_of(values, where: str, column: str) -> list[bytes | None]:
    """The bytes of an Arrow column, None for null; invalid UTF-8 stays as it is.

    Raises:
        UserError: the column holds no text.
    """
    import pyarrow

    check_text(values.type, where, column)
    if pyarrow.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    return values.cast(pyarrow.large_binary()).to_pylist()


def _batch_rows(file) -> int:
    """Rows to read at once: fewer where rows are large."""
    meta = file.metadata
    groups = [meta.row_group(i) for i in range(meta.num_row_groups)]
    largest = max((g.total_byte_size / max(1, g.num_rows) for g in groups), default=1)
    return max(1, min(PARQUET_ROWS, int(PARQUET_BYTES / max(1, largest))))


_READERS: dict[str, Callable] = {"txt": _txt, "lines": _lines, "jsonl": _jsonl, "parquet": _parquet}
