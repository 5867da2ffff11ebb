"""A Hugging Face dataset, streamed: batches of the one column pass through as Arrow has them.

Not row by row: that is seven times slower, and makes Python text of bytes that may be none.
"""

from collections.abc import Iterator
from pathlib import Path

from rltok_core.config.sources import HubSource
from rltok_core.config.strict import nearest
from rltok_core.data.checksums import Checksums
from rltok_core.data.documents import Document, Log
from rltok_core.data.files import Input, expand, texts_of
from rltok_core.errors import UserError

LOCAL_BUILDERS = ("parquet", "json", "arrow")
BATCH_ROWS = 256


def name_of(source: HubSource) -> str:
    """What the dataset is called in messages and documents' names."""
    return source.path + (f"/{source.config}" if source.config else "")


def local_files(source: HubSource) -> list[Input]:
    """The files that one of the library's own builders reads; none for a dataset of the hub.

    Raises:
        UserError: a path or glob names no file.
    """
    if source.path not in LOCAL_BUILDERS:
        return []
    return [Input(path, None, Path(path).stat().st_size) for path in expand(source.data_files)]


def commit_of(source: HubSource) -> str:
    """The full commit hash of a hub dataset's revision, so that the manifest can name it.

    Raises:
        UserError: the hub can't be reached, or has no such dataset or revision.
    """
    import httpx2
    import huggingface_hub

    try:
        info = huggingface_hub.HfApi().dataset_info(source.path, revision=source.revision)
    except (httpx2.HTTPError, OSError) as error:
        reason = f"revision {source.revision or 'main'}: {' '.join(str(error).split())}"
        raise _unreadable(source, reason) from error
    return info.sha


def _unreadable(source: HubSource, reason: str) -> UserError:
    text = f"dataset {name_of(source)!r}, split {source.split!r}: can't be read: {reason}"
    return UserError(text)


def read_hub(
    source: HubSource, log: Log, index: int, commit: str | None, checksums: Checksums
) -> Iterator[Document]:
    """Rows of one part of a dataset's split; the text column alone is looked at.

    Args:
        index: of the part, 0 to source.shards - 1.
        commit: of a hub dataset; None for a local builder.

    Raises:
        UserError: the dataset can't be read or is in fewer files than source.shards; it has no
            such column, or no text in it.
    """
    import datasets
    import pyarrow

    name = name_of(source)
    where = f"{name}:{source.split}" + (f":part {index}" if source.shards > 1 else "")
    try:
        rows = datasets.load_dataset(
            source.path,
            source.config,
            split=source.split,
            revision=commit,
            data_files=[f.path for f in local_files(source)] or source.data_files or None,
            streaming=True,
        )
        if source.shards > rows.num_shards:
            raise UserError(
                f"{name}: shards: {source.shards}, but the dataset's split {source.split!r} is in "
                f"{rows.num_shards} files; set shards to at most that"
            )
        rows = rows.shard(source.shards, index) if source.shards > 1 else rows
        if rows.column_names is not None and source.column not in rows.column_names:
            hint = nearest(source.column, rows.column_names)
            raise UserError(f"{name} ({source.split}): no column {source.column!r}{hint}")
        _log(source, log, commit, checksums)
        number = 0
        for table in rows.select_columns([source.column]).with_format("arrow").iter(BATCH_ROWS):
            for data in texts_of(table.column(0), f"{name} ({source.split})", source.column):
                if data is None:
                    log.counts["null"] += 1
                else:
                    yield Document(f"{where}:{number}", data)
                number += 1
    except (
        OSError, ValueError, pyarrow.ArrowException, datasets.exceptions.DatasetsError
    ) as error:  # fmt: skip
        raise _unreadable(source, " ".join(str(error).split())) from error


def _log(source: HubSource, log: Log, commit: str | None, checksums: Checksums) -> None:
    """What is read: a dataset's commit, or each local file with its hash."""
    if commit is not None:
        entry = {"name": name_of(source), "version": commit, "sha256": None}
        log.sources.append(entry | {"split": source.split})
    for file in local_files(source):
        entry = {"name": file.path, "sha256": checksums.sha256(file.path)}
        log.sources.append(entry | {"bytes": file.bytes})
