"""What inspect says of a folder, against counts made by hand; the overlap against sets."""

import numpy as np
import pytest

from rltok_core.data import overlap
from rltok_core.data.documents import Document
from rltok_core.data.inspect import inspect, lengths, picture
from rltok_core.data.overlap import WINDOW, measure, window_hashes


def windows(documents: list[bytes]) -> list[bytes]:
    return [d[i : i + WINDOW] for d in documents for i in range(len(d) - WINDOW + 1)]


def test_hashes_tell_windows_apart_and_nothing_else():
    rng = np.random.default_rng(0)
    data = rng.integers(0, 2, 3000).astype(np.uint8)
    data[2000:2500] = data[100:600]
    found = window_hashes(data)
    want = windows([data.tobytes()])
    assert len(found) == len(want) == 3000 - WINDOW + 1
    assert len(set(found.tolist())) == len(set(want)) <= len(want) - (500 - WINDOW + 1)
    assert found[2000] == found[100]
    assert len(window_hashes(data[: WINDOW - 1])) == 0


@pytest.mark.parametrize("piece", [50, 333, 1 << 22])
def test_overlap_is_that_of_sets(tmp_path, write_store, monkeypatch, piece):
    monkeypatch.setattr(overlap, "PIECE_BYTES", piece)
    rng = np.random.default_rng(1)
    text = rng.integers(97, 123, 5000).astype(np.uint8).tobytes()
    train = [text[:700], b"", text[700:740], text[740:1000], text[1000:1030], text[1030:2000]]
    test = [text[600:900], text[680:760], text[3000:3400], text[5:200] + text[4000:4100], b"short"]
    stores = [
        write_store(tmp_path / name, [Document(name, d) for d in documents])
        for name, documents in (("train", train), ("test", test))
    ]
    found = measure(stores[1], stores[0])
    known = set(windows(train))
    per_document = [[w in known for w in windows([d])] for d in test]
    assert found.windows == sum(map(len, per_document))
    assert found.shared == sum(map(sum, per_document)) > 100
    assert found.documents == 5
    assert found.mostly_shared == sum(bool(d) and 2 * sum(d) >= len(d) for d in per_document) == 2


def test_inspect_counts_scripts_bytes_and_lengths(tmp_path, build_files):
    path = tmp_path / "a.txt"
    words = "日本語かな" * 20 + "abc"
    path.write_text("\n".join([words, "x" * 9, "y" * 300]), encoding="utf-8")
    folder, _ = build_files([path], "lines")
    text = inspect(folder, samples=3, sample_bytes=10)
    assert f"non-ASCII bytes {300 / 612:.2%}" in text
    assert "LATIN 75.7%, CJK 14.6%, HIRAGANA 9.7%" in text
    assert "'日本語'" in text  # the fourth character, which the cut goes through, is left out
    for words in ("counts  read 3  kept 3", "split   counts, seed 0", "min_bytes 0", "overlap"):
        assert words in text
    picture(folder, tmp_path / "lengths.png")
    assert (tmp_path / "lengths.png").read_bytes().startswith(b"\x89PNG")


def test_lengths_are_counted_by_octaves(tmp_path, write_store):
    sizes = [0, 1, 2, 3, 4, 7, 8, 1023, 1024]
    store = write_store(tmp_path / "s", [Document("d", b"x" * n) for n in sizes])
    counts = lengths(store)
    assert {k: int(n) for k, n in enumerate(counts) if n} == {0: 2, 1: 2, 2: 2, 3: 1, 9: 1, 10: 1}
    assert lengths(store, per_octave=2).sum() == len(sizes)
