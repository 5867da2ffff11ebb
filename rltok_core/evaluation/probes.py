"""Probes: what a fixed little suite of texts gets, and how boundaries take small edits.

The texts are the same for every run, so that methods can be compared boundary by boundary
(probes.json; `suite_hash` names them). Edits keep the length, and the random stream is that of the
unedited text: what moves is the method's doing.
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from rltok_core.boundaries.contract import HintReader
from rltok_core.config.schema import RunConfig
from rltok_core.evaluation.bits import LN2
from rltok_core.evaluation.score import WindowScore
from rltok_core.evaluation.segmentation import Agreement
from rltok_core.evaluation.text import text_windows

PROSE = "The old captain looked at the sea for a while, and then he said that they "
LICENCE = (
    "# Permission is granted, free of charge, to any person obtaining a copy of this\n"
    "# software, to deal in it without restriction, including the rights to use, copy,\n"
)
CODE = (
    "class Table:\n    def rows(self):\n        for row in self.data:\n            if row:\n"
    "                for cell in row:\n                    yield cell\n"
)
CASES = 8  # typos a text


@dataclass(frozen=True)
class Probe:
    """A text: `before` and `after` are the surroundings of what it is about."""

    name: str
    title: str
    before: str
    subject: str
    after: str

    @property
    def text(self) -> bytes:
        return (self.before + self.subject + self.after).encode()

    @property
    def span(self) -> tuple[int, int]:
        first = len(self.before.encode())
        return first, first + len(self.subject.encode())


SUITE = (
    Probe("one_byte", "a long run of one byte", PROSE, "a" * 96, " and so it went."),
    Probe("number", "a number", PROSE + "counted ", "3141592653589793238462643", " of them there."),
    Probe(
        "url", "a URL", PROSE + "read ", "https://www.example.org/a/b-c/index.html?q=1", " again."
    ),
    Probe("licence", "a licence header", "", LICENCE, "import os\n"),
    Probe("indentation", "an indentation block", "", CODE, "\n"),
    Probe(
        "prose", "prose", "", PROSE + "would have to wait until the wind had turned again.", "\n"
    ),
    Probe(
        "chinese", "Chinese", "", "天地玄黄,宇宙洪荒。日月盈昃,辰宿列张。寒来暑往,秋收冬藏。", "\n"
    ),
)


def suite_hash() -> str:
    """sha256 of all that is in the suite."""
    return hashlib.sha256(repr(SUITE).encode()).hexdigest()


Score = Callable[..., Iterable[WindowScore]]


def suite_texts(run: RunConfig, reader: HintReader | None, score: Score) -> list[dict]:
    """The suite, scored byte by byte.

    Args:
        score: (windows, indices) -> scores, as in the evaluation.
    """
    windows = text_windows([probe.text for probe in SUITE], run, reader)
    parts: dict[int, list[WindowScore]] = {}
    for part in score(windows, list(range(len(windows)))):
        parts.setdefault(part.document, []).append(part)
    shown = []
    for document, probe in enumerate(SUITE):
        found = parts[document]
        boundary = np.concatenate([part.boundary for part in found])
        free = np.concatenate([np.arange(len(p.boundary)) < len(p.boundary) - 1 for p in found])
        first, last = probe.span
        inside = boundary[first:last][free[first:last]]
        shown.append(
            {
                "name": probe.name,
                "title": probe.title,
                "bytes": list(probe.text),
                "prob": np.concatenate([p.prob for p in found]).astype(float).tolist(),
                "boundary": boundary.astype(int).tolist(),
                "bits": (np.concatenate([p.nats for p in found]).astype(float) / LN2).tolist(),
                "first": first,
                "last": last,
                "rate": float(inside.mean()),
            }
        )
    return shown


def stability(
    documents: list[bytes], run: RunConfig, reader: HintReader | None, score: Score
) -> list[dict]:
    """F1 of the boundaries before and after small edits of one window of each document."""
    documents = [document[: run.training.seq_len - 1] for document in documents]
    places = [(i, place) for i, document in enumerate(documents) for place in _letters(document)]
    typos = [_typo(documents[i], place) for i, place in places]
    edited = [*documents, *(document.upper() for document in documents), *typos]
    windows = text_windows(edited, run, reader)
    unedited = text_windows([*documents, *documents, *(documents[i] for i, _ in places)], run, None)
    scores = score(windows, list(range(len(windows))), streams=unedited)
    found = [part.boundary for part in scores]
    n = len(documents)
    before, upper, typed = found[:n], found[n : 2 * n], found[2 * n :]

    whole, kept, later = Agreement(), Agreement(), Agreement()
    for one, other in zip(before, upper, strict=True):
        whole.add(other, one)
    for other, (i, place) in zip(typed, places, strict=True):
        one, other = before[i].copy(), other.copy()
        one[place] = other[place] = False
        kept.add(other, one)
        later.add(other[place:], one[place:])
    return [
        {
            "edit": "upper_case",
            "title": "every ASCII letter in upper case",
            "cases": len(documents),
            "kept": whole.scores()["f1"],
            "kept_after": None,
            "same_stream": True,
        },
        {
            "edit": "typo",
            "title": "one letter replaced",
            "cases": len(typos),
            "kept": kept.scores()["f1"],
            "kept_after": later.scores()["f1"],
            "same_stream": True,
        },
    ]


def _letters(document: bytes) -> list[int]:
    """Places of at most CASES ASCII letters, evenly spread."""
    text = np.frombuffer(document, np.uint8)
    lower = text | 32
    places = np.flatnonzero((lower >= ord("a")) & (lower <= ord("z")))
    chosen = np.linspace(0, len(places) - 1, min(CASES, len(places))).round().astype(int)
    return places[chosen].tolist()


def _typo(document: bytes, place: int) -> bytes:
    return document[:place] + bytes([_neighbour(document[place])]) + document[place + 1 :]


def _neighbour(letter: int) -> int:
    """The next letter of the alphabet, a after z; its case is kept."""
    return (letter | 32) % 32 % 26 + (letter & ~31) + 1


def probes(run: RunConfig, reader: HintReader | None, documents: list[bytes], score: Score) -> dict:
    """The values of probes.json that a model has to be asked for.

    Args:
        documents: for stability, beside the suite's prose; only a first window of each is used.
    """
    prose = next(probe.text for probe in SUITE if probe.name == "prose")
    return {
        "suite_hash": suite_hash(),
        "reason": None,
        "texts": suite_texts(run, reader, score),
        "stability": stability([prose, *documents], run, reader, score),
    }
