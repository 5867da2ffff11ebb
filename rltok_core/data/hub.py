"""A Hugging Face dataset, streamed: rows pass through one by one and are never held together."""

from collections.abc import Iterator

from rltok_core.config.sources import HubSource
from rltok_core.data.documents import Document, Log
from rltok_core.data.files import expand, text_of
from rltok_core.errors import UserError

LOCAL_BUILDERS = ("parquet", "json", "arrow")


def read_hub(source: HubSource, log: Log) -> Iterator[Document]:
    """Rows of a dataset's split; the text column alone is looked at.

    The commit that a hub dataset's revision stands for is found first, loaded and logged.

    Raises:
        UserError: the hub can't be reached, or has no such dataset, configuration or split; a row
            has no such column, or no text in it.
    """
    import datasets

    name = source.path + (f"/{source.config}" if source.config else "")
    try:
        if source.path in LOCAL_BUILDERS:
            revision, data_files = None, expand(source.data_files)
        else:
            revision, data_files = _commit(source), source.data_files or None
        rows = datasets.load_dataset(
            source.path,
            source.config,
            split=source.split,
            revision=revision,
            data_files=data_files,
            streaming=True,
        )
        log.sources.append(
            {"name": name, "version": revision, "sha256": None, "split": source.split}
        )
        for number, row in enumerate(rows):
            data = text_of(row, source.column, f"{name} ({source.split}): row {number}")
            if data is None:
                log.counts["null"] += 1
            else:
                yield Document(f"{name}:{source.split}:{number}", data)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"dataset {name!r}, split {source.split!r}: can't be read: {reason}"
        ) from error


def _commit(source: HubSource) -> str:
    """The full commit hash of a hub dataset's revision, so that the manifest can name it."""
    import httpx2
    import huggingface_hub

    try:
        info = huggingface_hub.HfApi().dataset_info(source.path, revision=source.revision)
    except httpx2.HTTPError as error:
        raise OSError(f"revision {source.revision or 'main'}: {error}") from error
    return info.sha
