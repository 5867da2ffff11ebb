"""Fixtures: build a data folder from a few files, and read a store back as a list of bytes."""

import pytest

from rltok_core.config.schema import DataConfig
from rltok_core.data.build import build
from rltok_core.data.store import SPLITS, ByteStore, SplitWriter


@pytest.fixture
def build_files(tmp_path):
    """build_files(paths, format, ...) -> (folder, manifest); all documents train by default."""

    def make(paths, format, out="data", min_bytes=0, split=None, **source):
        config = DataConfig(
            name="t",
            source={"kind": "files", "paths": [str(p) for p in paths], "format": format, **source},
            min_bytes=min_bytes,
            split=split or {"scheme": "counts", "test": 0, "validation": 0},
        )
        return tmp_path / out, build(config, tmp_path / out)

    return make


@pytest.fixture
def documents_of():
    """documents_of(folder, split) -> {name: bytes}, in the store's order."""

    def read(folder, split="train"):
        store = ByteStore.open(folder / split)
        return {name: store[i].tobytes() for i, name in enumerate(store.names)}

    return read


@pytest.fixture
def all_documents(documents_of):
    """all_documents(folder) -> {split: list of bytes}."""
    return lambda folder: {split: list(documents_of(folder, split).values()) for split in SPLITS}


@pytest.fixture
def write_store():
    """write_store(folder, documents, with_truth=False) -> ByteStore."""

    def write(folder, documents, with_truth=False):
        size = sum(len(document.data) for document in documents)
        writer = SplitWriter(folder, len(documents), size, with_truth)
        for document in documents:
            writer.add(document)
        assert writer.close()["sha256"] == ByteStore.open(folder).sha256()
        return ByteStore.open(folder)

    return write
