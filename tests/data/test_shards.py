"""Shards: the same store however a corpus is cut, killed, resumed or cached."""

import json
import os
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rltok_core.config.schema import DataConfig
from rltok_core.data import checksums, files, runs, shards
from rltok_core.data.build import build, make_shard
from rltok_core.data.checksums import Checksums
from rltok_core.errors import UserError

SPLIT = {"scheme": "fractions", "test": 0.1, "validation": 0.1}


@pytest.fixture
def corpus(tmp_path):
    """Nine files of lines, with copies within and between them; their config."""
    for n in range(9):
        lines = [b"line %d of %d" % (i % 40, n // 2) for i in range(50)] + [b"", b"ab\x80"]
        (tmp_path / f"{n}.txt").write_bytes(b"\n".join(lines))
    source = {"kind": "files", "paths": [str(tmp_path / "*.txt")], "format": "lines"}
    return DataConfig(name="c", source=source, split=SPLIT, min_bytes=5)


def contents(folder, *without):
    return {
        path.relative_to(folder): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in without
    }


def test_store_does_not_depend_on_shards_buffers_or_merges(corpus, tmp_path, monkeypatch):
    whole = build(corpus, tmp_path / "whole")
    monkeypatch.setattr(shards, "SHARD_BYTES", 1)
    monkeypatch.setattr(runs, "HELD_BYTES", 3000)
    monkeypatch.setattr(runs, "RANGE", 7)
    monkeypatch.setattr(runs, "FAN_IN", 2)
    cut = build(corpus, tmp_path / "cut")
    assert len(shards.shards_of(corpus.source)) == 9
    assert contents(tmp_path / "whole") == contents(tmp_path / "cut") and whole == cut
    counts = cut["counts"]
    assert counts["read"] == 9 * 52 and counts["kept"] == 5 * 40
    assert counts["empty"] == 9 and counts["too_short"] == 9
    assert counts["duplicate"] == 9 * 50 - 5 * 40


KILLED = """
import os, signal, sys
from pathlib import Path
from rltok_core.config.schema import DataConfig
from rltok_core.data import shards
from rltok_core.data.build import build
shards.SHARD_BYTES = 1
made, make = [], shards.Workshop._make
def kill(self, *rest):
    if len(made) == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    made.append(make(self, *rest))
    return made[-1]
shards.Workshop._make = kill
build(DataConfig.model_validate_json(sys.argv[1]), Path(sys.argv[2]))
"""


def test_killed_twice_and_resumed_is_the_undisturbed_build(corpus, tmp_path):
    command = [sys.executable, "-c", KILLED, corpus.model_dump_json(), str(tmp_path / "killed")]
    place, seen = tmp_path / ".killed.shards", []
    for there, code in ((4, -9), (8, -9), (0, 0)):
        assert subprocess.run(command, check=False).returncode == code
        seen.append({p.parent.name: p.stat().st_ino for p in place.glob("0*/shard.json")})
        assert len(seen[-1]) == there
    assert seen[0].items() <= seen[1].items()  # finished shards were left alone
    build(corpus, tmp_path / "undisturbed")
    assert contents(tmp_path / "killed") == contents(tmp_path / "undisturbed")


def test_a_declared_file_that_a_glob_names_too_is_no_reason_to_build_again(
    corpus, tmp_path, monkeypatch
):
    source = corpus.source.model_dump() | {"validation_paths": [str(tmp_path / "3.txt")]}
    config = DataConfig(**corpus.model_dump() | {"source": source})
    manifest = build(config, tmp_path / "out")
    assert manifest["splits"]["validation"]["documents"] == 40
    monkeypatch.setattr(files, "_rows", None)  # nothing is read again
    assert build(config, tmp_path / "out") == manifest


def test_a_failing_shard_is_named_and_made_again_alone(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "SHARD_BYTES", 1)
    monkeypatch.setattr(shards, "MAX_DOCUMENT", 100)
    monkeypatch.setattr(files, "MAX_DOCUMENT", 100)
    bad = tmp_path / "7.txt"
    good = bad.read_bytes()
    bad.write_bytes(b"x" * 200)
    with pytest.raises(UserError, match=r"shard 7 of 9 \(.*7\.txt\): .*line 1: more than 128 MiB"):
        build(corpus, tmp_path / "d")
    bad.write_bytes(good)
    made = []
    original = shards.Workshop._make
    monkeypatch.setattr(
        shards.Workshop, "_make", lambda self, *a: made.append(a[0].index) or original(self, *a)
    )
    build(corpus, tmp_path / "d")
    assert made == [7, 8]
    assert not (tmp_path / ".d.shards").exists()


def test_shards_made_one_by_one_are_joined(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "SHARD_BYTES", 1)
    for index in (5, 0, 8, 1, 2, 7, 3, 6, 4):
        assert make_shard(corpus, tmp_path / "one", index)["documents"] == 50
    with pytest.raises(UserError, match="no shard 9: there are 9"):
        make_shard(corpus, tmp_path / "one", 9)
    with monkeypatch.context() as patch:
        patch.setattr(shards, "read_files", None)  # nothing is read again
        build(corpus, tmp_path / "one")
    build(corpus, tmp_path / "all")
    assert contents(tmp_path / "one") == contents(tmp_path / "all")


def test_a_limit_is_counted_over_shards(corpus, tmp_path, monkeypatch):
    source = corpus.source.model_copy(update={"max_documents": 130})
    limited = corpus.model_copy(update={"source": source})
    whole = build(limited, tmp_path / "whole")
    monkeypatch.setattr(shards, "SHARD_BYTES", 1)
    cut = build(limited, tmp_path / "cut")
    assert contents(tmp_path / "whole", "manifest.json") == contents(
        tmp_path / "cut", "manifest.json"
    )
    assert cut["counts"] == whole["counts"] and cut["counts"]["kept"] == 70
    with pytest.raises(UserError, match="max_documents and max_bytes are counted"):
        make_shard(limited, tmp_path / "cut", 0)


def rewrite(path, content: bytes) -> None:
    """Other bytes, the same size and date."""
    stat = path.stat()
    assert len(content) == stat.st_size
    path.write_bytes(content)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def test_what_makes_a_build_anew_and_what_does_not(corpus, tmp_path):
    out, manifest = tmp_path / "d", tmp_path / "d/manifest.json"
    path = tmp_path / "3.txt"
    cold = build(corpus, out)
    first = manifest.stat().st_ino
    before = contents(out)

    os.utime(path)  # another date, the same content
    assert build(corpus, out) == cold and manifest.stat().st_ino == first
    rewrite(path, path.read_bytes().replace(b"line", b"LINE"))
    changed = build(corpus, out)
    assert changed["content_hash"] != cold["content_hash"]
    rewrite(path, path.read_bytes().replace(b"LINE", b"line"))
    assert build(corpus, out) == cold and contents(out) == before  # warm as cold
    option = corpus.model_copy(update={"min_bytes": 12})
    assert build(option, out)["counts"]["too_short"] > cold["counts"]["too_short"]
    assert build(corpus, out) == cold
    data = out / "train/bytes.bin"
    rewrite(data, b"?" + data.read_bytes()[1:])  # a damaged store is no finished one
    assert build(corpus, out) == cold and contents(out) == before


def test_identity_stays_until_the_content_changes(tmp_path, monkeypatch):
    monkeypatch.setattr(checksums, "RACY", 0)
    path, memo = tmp_path / "a.txt", tmp_path / "memo.json"
    path.write_bytes(b"one")

    def ask(name):
        known = Checksums(memo)
        found = getattr(known, name)(str(path))
        known.save()
        return found

    first = ask("identity")
    digest = ask("sha256")
    assert ask("identity") == first
    os.utime(path, (1, 1))
    assert ask("identity") == first and ask("sha256") == digest
    rewrite(path, b"two")
    assert ask("identity") != first and ask("sha256") != digest
    memo.write_text("not JSON")
    assert Checksums(memo).sha256(str(path)) == ask("sha256")


def test_content_scheme_leaves_documents_where_they_are(corpus, tmp_path, all_documents):
    split = corpus.split.model_copy(update={"scheme": "content", "test": 0.2, "validation": 0.1})
    config = corpus.model_copy(update={"split": split})
    few = config.source.model_copy(update={"paths": [str(tmp_path / "[0-5].txt")]})
    build(config.model_copy(update={"source": few}), tmp_path / "few")
    build(config, tmp_path / "all")
    few, every = all_documents(tmp_path / "few"), all_documents(tmp_path / "all")
    for name, documents in few.items():
        assert set(documents) < set(every[name])
    assert 0.1 < len(every["test"]) / 200 < 0.3  # near its share, not exactly


def test_the_papers_scheme_brings_its_numbers():
    split = DataConfig(name="p", source={"kind": "planted", "documents": 1, "document_bytes": 9})
    split = split.split.model_validate({"scheme": "paper"})
    assert (split.test, split.validation) == (32768, 256)
    with pytest.raises(ValueError, match="scheme paper: test is 32768, not 5"):
        split.model_validate({"scheme": "paper", "test": 5})


def test_parts_of_a_hub_dataset_are_the_files_read_whole(tmp_path):
    for n in range(4):
        texts = [f"document {n}.{i}".encode() for i in range(30)] + [b"the same \x80", None]
        column = pa.array(texts).view(pa.string())  # bytes that aren't UTF-8 are kept
        pq.write_table(pa.table({"text": column}), tmp_path / f"{n}.parquet")
    hashes = set()
    glob = [str(tmp_path / "*.parquet")]
    for kind in ({"path": "parquet", "shards": 1}, {"path": "parquet", "shards": 3}, None):
        source = {"kind": "hub", "data_files": glob, **(kind or {})}
        if kind is None:
            source = {"kind": "files", "paths": glob, "format": "parquet"}
        manifest = build(DataConfig(name="h", source=source), tmp_path / "h")
        hashes.add(manifest["content_hash"])
        counts = manifest["counts"]
        assert (counts["kept"], counts["null"], counts["invalid_utf8"]) == (121, 4, 4)
        assert len(manifest["sources"]) == 4
    assert len(hashes) == 1
    source = {"kind": "hub", "path": "parquet", "data_files": glob, "shards": 5}
    with pytest.raises(UserError, match=r"shards: 5, but .* is in 4 files"):
        build(DataConfig(name="h", source=source), tmp_path / "h")


def test_zst_is_read_and_a_cut_one_refused(tmp_path, build_files, documents_of):
    path = tmp_path / "a.jsonl.zst"
    text = "".join(json.dumps({"text": f"text {i}"}) + "\n" for i in range(5)).encode()
    frames = pa.compress(text, codec="zstd", asbytes=True)
    path.write_bytes(frames + pa.compress(b'{"text": "last"}', codec="zstd", asbytes=True))
    folder, _ = build_files([path], "jsonl")
    assert sorted(documents_of(folder).values()) == [b"last", *(b"text %d" % i for i in range(5))]
    path.write_bytes(frames[:-5])
    with pytest.raises(UserError, match=r"a\.jsonl\.zst: can't be read: .*[Tt]runcated"):
        build_files([path], "jsonl")
