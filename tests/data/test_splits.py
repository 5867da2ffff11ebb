"""Splits: seeded, by document, without a text in two of them, whatever the files' order (K07)."""

from itertools import combinations

import pytest

from rltok_core.errors import UserError

TEXTS = [f"text number {n}".encode() for n in range(10)]
TENTHS = {"scheme": "fractions", "test": 0.1, "validation": 0.2, "seed": 0}


@pytest.mark.parametrize("seed", range(8))
def test_K07_no_text_in_two_splits(tmp_path, build_files, all_documents, seed):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\n".join(TEXTS + TEXTS))
    split = {"scheme": "counts", "test": 2, "validation": 3, "seed": seed}
    folder, manifest = build_files([path], "lines", split=split)
    found = all_documents(folder)
    assert {k: len(v) for k, v in found.items()} == {"train": 5, "validation": 3, "test": 2}
    assert sorted(sum(found.values(), [])) == sorted(TEXTS)
    for a, b in combinations(found.values(), 2):
        assert not set(a) & set(b)
    assert (manifest["counts"]["kept"], manifest["counts"]["duplicate"]) == (10, 10)


def test_K07_splits_do_not_depend_on_number_or_order_of_files(tmp_path, build_files):
    one, two, three = (tmp_path / name for name in ("one.txt", "two.txt", "three.txt"))
    one.write_bytes(b"\n".join(TEXTS))
    two.write_bytes(b"\n".join(TEXTS[6:]))
    three.write_bytes(b"\n".join(TEXTS[:6]))
    hashes = {
        build_files(paths, "lines", out=f"d{n}", split=TENTHS)[1]["content_hash"]
        for n, paths in enumerate([[one], [two, three], [three, two], [one, two]])
    }
    assert len(hashes) == 1


def test_K07_a_declared_validation_source_keeps_its_hash(tmp_path, build_files, all_documents):
    held, one, two = (tmp_path / name for name in ("held.txt", "one.txt", "two.txt"))
    held.write_bytes(b"\n".join(TEXTS[:3]))
    one.write_bytes(b"\n".join(TEXTS[2:6]))  # one of the held-out texts is here too
    two.write_bytes(b"\n".join(TEXTS[6:]))
    hashes = set()
    for n, paths in enumerate([[one], [one, two], [two, one], [two]]):
        folder, manifest = build_files(
            paths, "lines", out=f"d{n}", split=TENTHS, validation_paths=[str(held)]
        )
        found = all_documents(folder)
        assert sorted(found["validation"]) == TEXTS[:3]
        assert not set(found["validation"]) & set(found["train"] + found["test"])
        assert len(found["test"]) >= 1
        assert manifest["counts"]["duplicate"] == (one in paths)
        hashes.add(manifest["splits"]["validation"]["sha256"])
    assert len(hashes) == 1


def test_seed_moves_documents(tmp_path, build_files):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\n".join(TEXTS))
    first, second = (
        build_files([path], "lines", out=f"s{seed}", split=TENTHS | {"seed": seed})[1]
        for seed in (0, 1)
    )
    assert first["splits"]["test"]["sha256"] != second["splits"]["test"]["sha256"]


def test_fractions_round_and_never_vanish(tmp_path, build_files):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\n".join(TEXTS))
    split = {"scheme": "fractions", "test": 0.001, "validation": 0.26}
    _, manifest = build_files([path], "lines", split=split)
    sizes = {name: part["documents"] for name, part in manifest["splits"].items()}
    assert sizes == {"train": 6, "validation": 3, "test": 1}


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ({"scheme": "counts", "test": 8, "validation": 2}, "10 documents .* nothing is left"),
        ({"scheme": "counts", "test": 0.5, "validation": 1}, r"split\.test: 0\.5 .*counts"),
        ({"scheme": "fractions", "test": 1.0, "validation": 0}, r"split\.test: 1\.0 .*share"),
        ({"scheme": "fractions", "test": 0.5, "validation": 0.5}, "nothing is left"),
    ],
)
def test_splits_that_do_not_fit(tmp_path, build_files, split, message):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\n".join(TEXTS))
    with pytest.raises(UserError, match=message):
        build_files([path], "lines", split=split)
    assert not (tmp_path / "data").exists()


def test_no_document_left(tmp_path, build_files):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\n\n\n")
    with pytest.raises(UserError, match="0 documents are left"):
        build_files([path], "lines")
