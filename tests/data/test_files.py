"""The user's own files: what becomes a document, byte for byte, and what each fault is called."""

import gzip
import hashlib
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rltok_core.data.batches import Windows
from rltok_core.data.store import ByteStore
from rltok_core.errors import UserError

SEPARATORS = "a\u2028b\u2029c\x0bd\x0ce\x85f\r\ng\rh\ni"


def test_K01_lines_split_at_lf_alone(tmp_path, build_files, documents_of):
    path = tmp_path / "a.txt"
    path.write_bytes(SEPARATORS.encode())
    assert path.stat().st_size == 23
    folder, manifest = build_files([path], "lines")
    found = documents_of(folder)
    want = ["a\u2028b\u2029c\x0bd\x0ce\x85f\r".encode(), b"g\rh", b"i"]
    assert [found[f"{path}:{n}"] for n in (1, 2, 3)] == want
    assert manifest["counts"]["kept"] == 3
    assert manifest["splits"]["train"]["bytes"] + 2 == 23  # and the two separators


def test_K01_jsonl_with_raw_separators_is_one_document(tmp_path, build_files, documents_of):
    text = "a\u2028b\u2029c\x85f"
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": text}, ensure_ascii=False) + "\n", encoding="utf-8")
    assert "\u2028".encode() in path.read_bytes()
    folder, _ = build_files([path], "jsonl")
    assert list(documents_of(folder).values()) == [text.encode()]


def test_K01_txt_is_one_document(tmp_path, build_files, documents_of):
    path = tmp_path / "a.txt"
    path.write_bytes(SEPARATORS.encode())
    folder, _ = build_files([path], "txt")
    assert list(documents_of(folder).values()) == [SEPARATORS.encode()]


def _check_k03(folder, manifest, names, found):
    assert [found.get(name) for name in names] == [b"ab", None, None, b"  ", "né".encode()]
    counts = manifest["counts"]
    assert (counts["null"], counts["empty"], counts["whitespace_only"]) == (1, 1, 1)
    assert counts["kept"] == len(found) == 3
    assert manifest["splits"]["train"]["bytes"] == 2 + 2 + 3


@pytest.mark.parametrize("late", [False, True])
def test_K03_parquet_null_and_empty(tmp_path, build_files, documents_of, late):
    texts, meta = ["ab", None, "", "  ", "né"], [None, None, None, "x", "y"]
    table = pa.table({"id": range(5), "text": texts, "meta": meta[:: -1 if late else 1]})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, row_group_size=3)
    folder, manifest = build_files([path], "parquet")
    _check_k03(folder, manifest, [f"{path}:row {i}" for i in range(5)], documents_of(folder))


@pytest.mark.parametrize("order", [1, -1])
def test_K03_jsonl_null_and_unused_columns(tmp_path, build_files, documents_of, order):
    metas = [None, None, None, "x", {"deep": 1}][::order]
    rows = zip(["ab", None, "", "  ", "né"], metas, strict=True)
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": t, "meta": m}) + "\n" for t, m in rows))
    folder, manifest = build_files([path], "jsonl")
    _check_k03(folder, manifest, [f"{path}:{i}" for i in range(1, 6)], documents_of(folder))


def test_K03_parquet_reads_the_one_column(tmp_path, build_files, documents_of, monkeypatch):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["abc"], "image": [b"0" * 100]}), path)
    asked = []
    original = pq.ParquetFile.iter_batches

    def spy(self, *args, columns=None, **kwargs):
        asked.append(columns)
        return original(self, *args, columns=columns, **kwargs)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", spy)
    build_files([path], "parquet")
    assert asked == [["text"]]


def test_K05_nul_bytes_are_bytes(tmp_path, build_files):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\x00\nab\x00\n\x00ab")
    folder, _ = build_files([path], "lines")
    store = ByteStore.open(folder / "train")
    assert sorted(np.diff(store.offsets)) == [1, 3, 3]
    windows = Windows(store, 16, "first")
    batch = windows.batch([0, 1, 2], [0, 1, 2])
    assert sorted((batch.length_B - 1).tolist()) == [1, 3, 3]
    assert int(batch.scored_BS.sum()) == 7
    for row, index in enumerate([0, 1, 2]):
        ids = batch.ids_BS[row, 1 : batch.length_B[row]]
        assert (ids - 64).tolist() == store[index].tolist()


def test_K05_nul_in_json_and_parquet(tmp_path, build_files, documents_of):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "\\u0000"}\n{"text": "\\u0000ab"}')
    folder, _ = build_files([path], "jsonl")
    assert sorted(documents_of(folder).values()) == [b"\x00", b"\x00ab"]
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["ab\x00"]}), path)
    folder, _ = build_files([path], "parquet", out="p")
    assert list(documents_of(folder).values()) == [b"ab\x00"]


def test_bytes_are_kept_as_they_are(tmp_path, build_files, documents_of):
    data = b"\xef\xbb\xbfcaf\xe9 \x80\r\n"
    path = tmp_path / "a.txt"
    path.write_bytes(data)
    folder, manifest = build_files([path], "txt")
    assert list(documents_of(folder).values()) == [data]
    assert manifest["counts"]["invalid_utf8"] == 1


def test_invalid_utf8_in_parquet_is_kept_and_counted(tmp_path, build_files, documents_of):
    array = pa.array([b"ab\x80", b"ok"]).cast(pa.binary()).view(pa.string())
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": array}), path)
    folder, manifest = build_files([path], "parquet")
    assert sorted(documents_of(folder).values()) == [b"ab\x80", b"ok"]
    assert manifest["counts"]["invalid_utf8"] == 1


def test_parquet_dictionary_column(tmp_path, build_files, documents_of):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": pa.array(["x", "yy", None]).dictionary_encode()}), path)
    folder, manifest = build_files([path], "parquet")
    assert sorted(documents_of(folder).values()) == [b"x", b"yy"]
    assert manifest["counts"]["null"] == 1


def test_jsonl_byte_order_mark_is_outside_the_text(tmp_path, build_files, documents_of):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"text": "ab"}\n')
    folder, _ = build_files([path], "jsonl")
    assert list(documents_of(folder).values()) == [b"ab"]


def test_gzip_and_globs(tmp_path, build_files, documents_of):
    for n in range(3):
        with gzip.open(tmp_path / f"part{n}.jsonl.gz", "wt") as file:
            file.write(json.dumps({"text": f"text {n}"}) + "\n")
    folder, manifest = build_files([tmp_path / "part*.jsonl.gz"], "jsonl")
    assert sorted(documents_of(folder).values()) == [b"text 0", b"text 1", b"text 2"]
    assert len(manifest["sources"]) == 3


def test_too_short_is_in_bytes(tmp_path, build_files, documents_of):
    path = tmp_path / "a.txt"
    path.write_text("abc\nné\nab", encoding="utf-8")
    folder, manifest = build_files([path], "lines", min_bytes=3)
    assert sorted(documents_of(folder).values()) == [b"abc", "né".encode()]
    assert manifest["counts"]["too_short"] == 1


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"txt": "ab"}', ["line 2", "no field 'text'", "'txt'"]),
        ('{"text": 5}', ["line 2", "'text'", "int"]),
        ('{"text": "ab"', ["line 2", "JSON"]),
        ('["ab"]', ["line 2", "list"]),
        ('{"text": "\\ud800"}', ["line 2", "'text'", "Unicode"]),
        ("[" * 100_000, ["line 2", "JSON"]),
    ],
)
def test_jsonl_faults_name_file_line_and_field(tmp_path, build_files, line, words):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "fine"}\n' + line + "\n")
    with pytest.raises(UserError) as error:
        build_files([path], "jsonl")
    for word in [str(path), *words]:
        assert word in str(error.value)
    assert not (tmp_path / "data").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["a.jsonl"]  # nothing half-made is left


def test_jsonl_invalid_utf8_names_the_line(tmp_path, build_files):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "ok"}\n{"text": "\x80"}\n')
    with pytest.raises(UserError, match=r"a\.jsonl: line 2: not valid UTF-8 at byte 10"):
        build_files([path], "jsonl")


def test_parquet_faults(tmp_path, build_files):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"content": ["a"], "size": [1]}), path)
    with pytest.raises(UserError, match=r"a\.parquet: no column 'text' .*content, size"):
        build_files([path], "parquet")
    with pytest.raises(UserError, match=r"column 'size' is int64, not text"):
        build_files([path], "parquet", column="size")
    path.write_bytes(b"this is no parquet file at all")
    with pytest.raises(UserError, match=r"a\.parquet: not a readable parquet"):
        build_files([path], "parquet")


def test_missing_files_and_hashes(tmp_path, build_files):
    path = tmp_path / "a.txt"
    path.write_text("ab")
    with pytest.raises(UserError, match=r"b\.txt: no such file"):
        build_files([path, tmp_path / "b.txt"], "txt")
    with pytest.raises(UserError, match=r"\*\.json: no such file"):
        build_files([tmp_path / "*.json"], "jsonl")
    with pytest.raises(UserError, match="is a folder"):
        build_files([tmp_path], "txt")
    with pytest.raises(UserError, match=r"a\.txt: sha256 is"):
        build_files([path], "txt", sha256={"a.txt": "00"})
    with pytest.raises(UserError, match=r"'A\.txt' is none of the files.*a\.txt"):
        build_files([path], "txt", sha256={"A.txt": "00"})
    right = hashlib.sha256(b"ab").hexdigest()
    _, manifest = build_files([path], "txt", sha256={str(path): right})
    assert manifest["sources"] == [{"name": str(path), "sha256": right, "bytes": 2}]


def test_damaged_gzip(tmp_path, build_files):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"some text " * 500)[:30])
    with pytest.raises(UserError, match=r"a\.txt\.gz: damaged gzip"):
        build_files([path], "txt")
    path.write_bytes(b"no gzip")
    with pytest.raises(UserError, match=r"a\.txt\.gz: damaged gzip"):
        build_files([path], "lines")
