"""The hub source, through datasets' own builders on local shards in the hub's formats."""

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rltok_core.config.schema import DataConfig
from rltok_core.data.build import build
from rltok_core.errors import UserError

ALL_TRAIN = {"scheme": "counts", "test": 0, "validation": 0}


def hub_build(tmp_path, path, files, **fields):
    limits = {key: fields.pop(key) for key in ("min_bytes", "split") if key in fields}
    source = {"kind": "hub", "path": path, "data_files": [str(f) for f in files], **fields}
    config = DataConfig(name="h", source=source, **({"split": ALL_TRAIN} | limits))
    return build(config, tmp_path / "h")


def test_parquet_shards_as_fineweb_has_them(tmp_path, documents_of):
    for shard in range(2):
        texts = [f"shard {shard} document {n} " * 4 for n in range(6)] + ["short", None]
        table = {"text": texts, "id": [str(n) for n in range(8)], "token_count": range(8)}
        pq.write_table(pa.table(table), tmp_path / f"00{shard}.parquet", row_group_size=3)
    split = {"scheme": "counts", "test": 2, "validation": 1}
    glob = tmp_path / "*.parquet"
    manifest = hub_build(tmp_path, "parquet", [glob], min_bytes=20, split=split)
    counts = manifest["counts"]
    assert (counts["kept"], counts["too_short"], counts["null"]) == (12, 2, 2)
    sizes = {name: part["documents"] for name, part in manifest["splits"].items()}
    assert sizes == {"train": 9, "validation": 1, "test": 2}
    found = documents_of(tmp_path / "h")
    assert set(found.values()) < {
        f"shard {s} document {n} ".encode() * 4 for s in range(2) for n in range(6)
    }
    assert all(name.startswith("parquet:train:") for name in found)


@pytest.mark.parametrize("order", [1, -1])
def test_K03_json_gz_as_codeparrot_has_them(tmp_path, documents_of, order):
    metas = [None, None, None, "a string", "another"][::order]
    rows = zip(["ab", None, "", "  ", "né"], metas, strict=True)
    with gzip.open(tmp_path / "file.json.gz", "wt", encoding="utf-8") as file:
        for text, meta in rows:
            file.write(json.dumps({"content": text, "meta": meta}, ensure_ascii=False) + "\n")
    manifest = hub_build(tmp_path, "json", [tmp_path / "file.json.gz"], column="content")
    assert sorted(documents_of(tmp_path / "h").values()) == [b"  ", b"ab", "né".encode()]
    counts = manifest["counts"]
    assert (counts["null"], counts["empty"], counts["whitespace_only"]) == (1, 1, 1)


def test_reading_stops_at_the_limit(tmp_path):
    good, bad = tmp_path / "a.parquet", tmp_path / "b.parquet"
    pq.write_table(pa.table({"text": [f"text {n}" for n in range(5)]}), good)
    bad.write_bytes(b"never opened")
    # a batch of rows may reach into the next file, a part of the dataset doesn't
    manifest = hub_build(tmp_path, "parquet", [good, bad], max_documents=3, shards=2)
    assert manifest["counts"]["kept"] == manifest["counts"]["read"] == 3


def test_faults_name_dataset_and_column(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"content": ["a"], "size": [3]}), path)
    with pytest.raises(UserError, match=r"parquet \(train\): no column 'text' .*content, size"):
        hub_build(tmp_path, "parquet", [path])
    with pytest.raises(UserError, match="'size' is int64, not text"):
        hub_build(tmp_path, "parquet", [path], column="size")
    source = {"kind": "hub", "path": "parquet", "data_files": [str(path)], "split": "dev"}
    config = DataConfig(name="h", source=source)
    with pytest.raises(UserError, match="dataset 'parquet', split 'dev': can't be read"):
        build(config, tmp_path / "h")
    path.write_bytes(b"damaged")
    with pytest.raises(UserError, match="dataset 'parquet'.*can't be read"):
        hub_build(tmp_path, "parquet", [path])
    assert not (tmp_path / "h").exists()


def test_the_commit_is_resolved_loaded_and_recorded(tmp_path, monkeypatch):
    import datasets
    import huggingface_hub

    asked = {}

    class Api:
        def dataset_info(self, path, revision=None):
            asked["info"] = (path, revision)
            return type("Info", (), {"sha": "f" * 40})()

    def load_dataset(path, config, **options):
        asked["load"] = (path, config, options)
        return datasets.Dataset.from_list([{"text": "a document"}]).to_iterable_dataset()

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    source = {"kind": "hub", "path": "a/b", "config": "sample", "revision": "v1"}
    manifest = build(DataConfig(name="h", source=source, split=ALL_TRAIN), tmp_path / "h")
    assert asked["info"] == ("a/b", "v1")
    path, config, options = asked["load"]
    assert (path, config) == ("a/b", "sample")
    assert options["revision"] == "f" * 40 and options["streaming"] is True
    assert manifest["sources"][0]["version"] == "f" * 40


def test_no_hub_is_one_clear_message(tmp_path, monkeypatch):
    import httpx2
    import huggingface_hub

    def offline(self, path, revision=None):
        raise httpx2.ConnectError("Name or service not known")

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", offline)
    source = {"kind": "hub", "path": "a/b", "config": "sample"}
    with pytest.raises(UserError, match="'a/b/sample'.*Name or service not known"):
        build(DataConfig(name="h", source=source), tmp_path / "h")
