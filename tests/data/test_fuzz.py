"""Whatever a file holds: a result whose counts add up, or one clear message that names the file."""

import io
import json
import os
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rltok_core.config.schema import DataConfig
from rltok_core.data import files
from rltok_core.data.build import build
from rltok_core.data.store import ByteStore
from rltok_core.errors import UserError

ALL_TRAIN = {"scheme": "counts", "test": 0, "validation": 0}
FUZZ = {
    "deadline": None,
    "derandomize": True,
    "database": None,
    "suppress_health_check": [HealthCheck.too_slow],
}
DROPPED = ("too_short", "empty", "null", "duplicate")


def build_bytes(content: bytes, suffix: str, format: str) -> tuple[dict, list[bytes]] | str:
    """Build from one file with this content: (manifest, documents), or the message."""
    with tempfile.TemporaryDirectory() as place:
        path, out = Path(place) / f"a{suffix}", Path(place) / "out"
        path.write_bytes(content)
        source = {"kind": "files", "paths": [str(path)], "format": format}
        try:
            manifest = build(DataConfig(name="f", source=source, split=ALL_TRAIN), out)
        except UserError as error:
            assert not out.exists()
            return str(error)
        store = ByteStore.open(out / "train")
        return manifest, [store[i].tobytes() for i in range(len(store))]


def check(found: tuple[dict, list[bytes]] | str, suffix: str) -> None:
    """Counts add up, or the message names the file or says that nothing is left."""
    if isinstance(found, str):
        assert f"a{suffix}" in found or "0 documents are left" in found
        return
    manifest, documents = found
    counts = manifest["counts"]
    assert counts["read"] == counts["kept"] + sum(counts[name] for name in DROPPED)
    assert counts["kept"] == len(documents) == len(set(documents))
    assert manifest["splits"]["train"]["bytes"] == sum(map(len, documents))


@settings(max_examples=80, **FUZZ)
@given(st.lists(st.binary(max_size=12), max_size=8))
def test_any_bytes_are_kept_line_by_line(lines):
    content = b"\n".join(lines)
    found = build_bytes(content, ".txt", "lines")
    check(found, ".txt")
    want = {line for line in content.split(b"\n") if line}
    assert (set() if isinstance(found, str) else set(found[1])) == want


@settings(max_examples=50, **FUZZ)
@given(st.binary(max_size=60))
def test_any_bytes_are_kept_as_one_document(content):
    found = build_bytes(content, ".txt", "txt")
    check(found, ".txt")
    assert ([] if isinstance(found, str) else found[1]) == [content] * bool(content)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=5,
)
ROWS = st.lists(
    st.fixed_dictionaries({"text": st.text(max_size=10)})
    | st.fixed_dictionaries({"text": VALUES})
    | VALUES,
    min_size=1,
    max_size=6,
)


def damaged(draw, content: bytes) -> bytes:
    """As it is, cut, or with some bytes written over."""
    how = draw(st.sampled_from(["whole", "cut", "changed"]))
    if how == "cut":
        return content[: draw(st.integers(0, len(content)))]
    data = bytearray(content)
    for _ in range(draw(st.integers(1, 4)) if how == "changed" and data else 0):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data)


@settings(max_examples=80, **FUZZ)
@given(st.data())
def test_any_jsonl(data):
    rows = data.draw(ROWS)
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    found = build_bytes(damaged(data.draw, content), ".jsonl", "jsonl")
    check(found, ".jsonl")


@settings(max_examples=30, **FUZZ)
@given(st.data())
def test_any_compressed_file(data):
    suffix = data.draw(st.sampled_from([".jsonl.gz", ".jsonl.zst"]))
    text = b"".join(b'{"text": "document %d"}\n' % i for i in range(40))
    content = pa.compress(text, codec={"gz": "gzip", "zst": "zstd"}[suffix[7:]], asbytes=True)
    check(build_bytes(damaged(data.draw, content), suffix, "jsonl"), suffix)


def parquet(column: pa.Array) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table({"text": column, "other": range(len(column))}), file, row_group_size=3)
    return file.getvalue()


COLUMNS = [
    pa.array(["one", None, "", "two", "two", "  ", "né"] * 2),
    pa.array([b"a\x80", b"", None]),
    pa.array(["x", "yy", "x"]).dictionary_encode(),
    pa.array(["x", "yy"], pa.large_string()),
    pa.array([1, 2, None]),
    pa.array([["nested"], []]),
    pa.array([{"text": "nested"}]),
    pa.nulls(3),
    pa.array([], pa.string()),
    pa.array([0.5, None]),
]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: str(column.type)[:12])
def test_any_parquet_column(column):
    found = build_bytes(parquet(column), ".parquet", "parquet")
    check(found, ".parquet")
    text = str(column.type).startswith(("string", "large_string", "binary", "dictionary", "null"))
    assert isinstance(found, str) is (not text or len(column) == column.null_count)  # none left


@settings(max_examples=50, **FUZZ)
@given(st.data())
def test_any_damaged_parquet(data):
    content = parquet(data.draw(st.sampled_from(COLUMNS[:4])))
    check(build_bytes(damaged(data.draw, content), ".parquet", "parquet"), ".parquet")


@pytest.mark.parametrize("format", ["txt", "lines", "jsonl", "parquet"])
def test_an_empty_file_and_a_folder(format, tmp_path, build_files):
    suffix = f".{format}"
    found = build_bytes(b"", suffix, format)
    assert isinstance(found, str)
    check(found, suffix)
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match="folder: is a folder"):
        build_files([tmp_path / "folder"], format)
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UserError, match="link: no such file"):
        build_files([tmp_path / "link"], format)


@pytest.mark.parametrize("how", ["vanishes", "changes"])
def test_a_file_that_changes_while_it_is_read(how, tmp_path, build_files, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\nthree")
    original = files._lines

    def meanwhile(name, column):
        rows = original(name, column)
        yield next(rows)
        path.unlink() if how == "vanishes" else path.write_text("ONE\nTWO\nTHREE")
        yield from rows

    monkeypatch.setitem(files._READERS, "lines", meanwhile)
    with pytest.raises(UserError, match=r"a\.txt: changed or vanished while it was read"):
        build_files([path], "lines")
    assert not (tmp_path / "data").exists()


def test_a_file_that_may_not_be_read(tmp_path, build_files, monkeypatch):
    """Told by what open() raises: root, who may run the tests, is never refused."""
    path = tmp_path / "a.txt"
    path.write_text("one")

    def refused(name):
        raise PermissionError(13, os.strerror(13), name)

    monkeypatch.setattr(files, "_open", refused)
    with pytest.raises(UserError, match=r"a\.txt: can't be read: Permission denied"):
        build_files([path], "lines")
