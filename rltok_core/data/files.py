"""The user's own files as documents: txt, lines, jsonl and parquet.

Lines are split at LF alone (b"\\n"): U+2028, VT, FF, NEL and CR stay in the text. See documents.py
for the policy on byte order marks and invalid UTF-8; a byte order mark before the first jsonl row
lies outside of every text and is skipped.
"""

import glob
import gzip
import hashlib
import json
import zlib
from collections.abc import Iterator
from pathlib import Path

from rltok_core.config.sources import FilesSource
from rltok_core.config.strict import nearest
from rltok_core.data.documents import Document, Log
from rltok_core.errors import UserError

PARQUET_ROWS = 512  # rows in memory at once


def read_files(source: FilesSource, log: Log) -> Iterator[Document]:
    """Documents of the declared test and validation files, then of the others.

    Raises:
        UserError: a file is missing or unreadable, has another sha256 than declared, or a row
            holds no text; the message names file, line and field.
    """
    declared = {"test": source.test_paths, "validation": source.validation_paths}
    groups = {split: expand(paths) for split, paths in declared.items()}
    groups[None] = expand(source.paths)
    every = [path for paths in groups.values() for path in paths]
    _check_hash_keys(source.sha256, every)
    for split, paths in groups.items():
        for path in paths:
            digest = _sha256(path)
            want = source.sha256.get(path, source.sha256.get(Path(path).name, digest))
            if digest != want.lower():
                raise UserError(f"{path}: sha256 is {digest}, the configuration says {want}")
            size = Path(path).stat().st_size
            log.sources.append({"name": path, "sha256": digest, "bytes": size})
            for name, data in _READERS[source.format](path, source.column):
                if data is None:
                    log.counts["null"] += 1
                else:
                    yield Document(name, data, split=split)


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


def _sha256(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _open(path: str):
    return gzip.open(path, "rb") if path.endswith(".gz") else open(path, "rb")


def _gzip_errors(reader):
    """Turn a damaged .gz into a UserError that names the file."""

    def read(path: str, column: str):
        try:
            yield from reader(path, column)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise UserError(f"{path}: damaged gzip file: {error}") from None

    return read


@_gzip_errors
def _txt(path: str, column: str) -> Iterator[tuple[str, bytes]]:
    with _open(path) as file:
        yield path, file.read()


@_gzip_errors
def _lines(path: str, column: str) -> Iterator[tuple[str, bytes]]:
    with _open(path) as file:
        for number, line in enumerate(file, 1):
            yield f"{path}:{number}", line.removesuffix(b"\n")


@_gzip_errors
def _jsonl(path: str, column: str) -> Iterator[tuple[str, bytes | None]]:
    with _open(path) as file:
        for number, line in enumerate(file, 1):
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            where = f"{path}: line {number}"
            try:
                row = json.loads(line.decode("utf-8"))
            except UnicodeDecodeError as error:
                raise UserError(f"{where}: not valid UTF-8 at byte {error.start}") from None
            except (json.JSONDecodeError, RecursionError) as error:
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
        with pyarrow.parquet.ParquetFile(path) as file:
            schema = file.schema_arrow
            if column not in schema.names:
                raise UserError(f"{path}: no column {column!r}{nearest(column, schema.names)}")
            kind = schema.field(column).type
            if pyarrow.types.is_dictionary(kind):
                kind = kind.value_type
            if not str(kind).removeprefix("large_").startswith(("string", "binary", "null")):
                raise UserError(f"{path}: column {column!r} is {kind}, not text")
            number = 0
            for batch in file.iter_batches(PARQUET_ROWS, columns=[column]):
                values = batch.column(0)
                if pyarrow.types.is_dictionary(values.type):
                    values = values.dictionary_decode()
                # as binary: invalid UTF-8 is kept and counted, never a crash or a replacement
                for value in values.cast(pyarrow.large_binary()).to_pylist():
                    yield f"{path}:row {number}", value
                    number += 1
    except pyarrow.ArrowException as error:
        raise UserError(f"{path}: not a readable parquet file: {error}") from None


_READERS = {"txt": _txt, "lines": _lines, "jsonl": _jsonl, "parquet": _parquet}
