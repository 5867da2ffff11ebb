"""The byte store: exact sizes, clear faults, nothing half-made that looks finished."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from rltok_core.data import shards
from rltok_core.data.documents import Document
from rltok_core.data.shards import maker
from rltok_core.data.store import ByteStore
from rltok_core.errors import UserError

K19 = "añ日👍".encode() + b"\x80"


@pytest.mark.parametrize("format", ["txt", "lines"])
def test_K19_bytes_of_the_store_are_the_files_size(tmp_path, build_files, format):
    path = tmp_path / "a.txt"
    path.write_bytes(K19)
    folder, manifest = build_files([path], format)
    store = ByteStore.open(folder / "train")
    size = path.stat().st_size
    assert size == 11
    assert store[0].tobytes() == K19
    assert manifest["splits"]["train"]["bytes"] == len(store.bytes) == store.offsets[-1] == size
    assert (folder / "train" / "bytes.bin").stat().st_size == size
    assert manifest["counts"]["invalid_utf8"] == 1


def _contents(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_two_builds_are_byte_identical(tmp_path, build_files):
    path = tmp_path / "a.txt"
    path.write_text("\n".join(f"line {n}" for n in range(50)))
    split = {"scheme": "fractions", "test": 0.1, "validation": 0.1}
    first, _ = build_files([path], "lines", out="a", split=split)
    second, _ = build_files([path], "lines", out="b", split=split)
    assert len(_contents(first)) == 10
    assert _contents(first) == _contents(second)


def test_a_build_that_fails_leaves_the_old_folder_whole(tmp_path, build_files, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo")
    folder, _ = build_files([path], "lines")
    before = _contents(folder)

    def full_disk(source, log, files, checksums):
        yield Document("x", b"abc")
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(shards, "read_files", full_disk)
    path.write_text("another")
    with pytest.raises(UserError, match="No space left on device"):
        build_files([path], "lines")
    assert _contents(folder) == before
    assert sorted(p.name for p in tmp_path.iterdir() if p.suffix != ".json") == ["a.txt", "data"]


def test_killed_join_leaves_nothing_finished_and_the_next_one_cleans_up(tmp_path, build_files):
    script = (
        "import os, signal, sys; from pathlib import Path\n"
        "from rltok_core.config.schema import DataConfig\n"
        "from rltok_core.data import build as b\n"
        "b.Plan = lambda *a: os.kill(os.getpid(), signal.SIGKILL)\n"
        "source = {'kind': 'files', 'paths': [sys.argv[1]], 'format': 'lines'}\n"
        "b.build(DataConfig(name='t', source=source), Path(sys.argv[2]))\n"
    )
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo")
    command = [sys.executable, "-c", script, str(path), str(tmp_path / "data")]
    assert subprocess.run(command, check=False).returncode == -9
    left = sorted(p.name for p in tmp_path.iterdir() if p.suffix != ".json")
    assert left[0].startswith(".data.building-") and left[1:] == [".data.shards", "a.txt"]
    host = maker().rpartition("-")[0]
    running = tmp_path / f".data.building-{host}-{os.getppid()}"  # another process, alive
    elsewhere = tmp_path / f".data.building-node7-{2**22}"  # not for us to say
    running.mkdir()
    elsewhere.mkdir()
    build_files([path], "lines")
    left = {p.name for p in tmp_path.iterdir() if p.suffix != ".json"}
    assert left == {running.name, elsewhere.name, "a.txt", "data"}


def test_build_replaces_data_and_empty_folders_but_nothing_else(tmp_path, build_files):
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo")
    (tmp_path / "data").mkdir()  # Snakemake makes the folder of a rule's output beforehand
    folder, _ = build_files([path], "lines")
    path.write_text("three")
    assert build_files([path], "lines")[1]["counts"]["kept"] == 1
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.tex").write_text("x")
    with pytest.raises(UserError, match="no data folder"):
        build_files([path], "lines", out="precious")
    assert (tmp_path / "precious" / "thesis.tex").exists()


def test_damaged_stores_name_the_file(tmp_path, write_store):
    documents = [Document("a", b"abc"), Document("b", b"de")]
    folder = tmp_path / "s"
    with pytest.raises(UserError, match=r"bytes\.bin: no such file"):
        ByteStore.open(folder)
    store = write_store(folder, documents)
    assert [store[i].tobytes() for i in range(2)] == [b"abc", b"de"]
    assert store.names == ["a", "b"] == store.first_names(9) and store.first_names(1) == ["a"]
    with pytest.raises(IndexError):
        store[2]
    (folder / "bytes.bin").write_bytes(b"abcd")
    with pytest.raises(UserError, match=r"bytes\.bin: damaged: 4 bytes where 5"):
        ByteStore.open(folder)
    (folder / "bytes.bin").write_bytes(b"abcde")
    (folder / "names.json").write_text('["a"]')
    with pytest.raises(UserError, match=r"names\.json: damaged"):
        _ = ByteStore.open(folder).names
    np.save(folder / "truth.npy", np.zeros(4, np.uint8))
    with pytest.raises(UserError, match=r"truth\.npy: damaged"):
        ByteStore.open(folder)
    np.save(folder / "offsets.npy", np.array([0, 4, 3, 5]))
    with pytest.raises(UserError, match=r"offsets\.npy: damaged"):
        ByteStore.open(folder)
    (folder / "offsets.npy").write_bytes(b"")
    with pytest.raises(UserError, match=r"offsets\.npy: missing or damaged"):
        ByteStore.open(folder)


@pytest.mark.parametrize("with_truth", [False, True])
def test_an_empty_split_opens(tmp_path, write_store, with_truth):
    store = write_store(tmp_path / "s", [], with_truth)
    assert len(store) == 0 and len(store.bytes) == 0 and store.names == [] == store.first_names(3)
    assert len(store.sha256()) == 64


def test_the_manifest_says_what_was_built(tmp_path, build_files):
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\n\n one")
    folder, manifest = build_files([path], "lines")
    assert json.loads((folder / "manifest.json").read_text()) == manifest
    store = ByteStore.open(folder / "train")
    assert manifest["splits"]["train"]["sha256"] == store.sha256()
    assert manifest["planted"] is None
    assert manifest["config"]["source"]["paths"] == [str(path)]
    assert manifest["id"] == f"t-{manifest['hash'][:8]}"
    assert {"python", "numpy", "pyarrow", "datasets"} <= set(manifest["tool_versions"])


def test_limits_stop_the_reading(tmp_path, build_files):
    path = tmp_path / "a.txt"
    path.write_text("\n".join(f"line {n}" for n in range(10)))
    assert build_files([path], "lines", max_documents=4)[1]["counts"]["kept"] == 4
    assert build_files([path], "lines", max_bytes=13)[1]["splits"]["train"]["bytes"] == 18
