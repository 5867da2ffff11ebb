"""Where characters and words start, one flag a byte: references for the boundaries of any script.

A character starts at every byte but UTF-8's continuation bytes (0x80 to 0xBF), whatever the text:
of invalid bytes it is as good a definition as any. Words are told apart by whitespace, or, where
there is none, by a segmenter: jieba (Chinese) or janome (Japanese), each on a whole document, as
a window's first and last word would be cut. A segmenter's token is a word if it has a letter, a
digit or an ideograph in it.
"""

import importlib
from collections.abc import Callable
from functools import cache

import numpy as np

from rltok_core.errors import UserError

PACKAGES = {"jieba": "jieba==0.42.1", "janome": "Janome==0.5.0"}


def character_starts(data: np.ndarray) -> np.ndarray:
    """bool, one a byte of `data` (uint8): what is no continuation byte of UTF-8."""
    return (data & 0xC0) != 0x80


def segmented_words(data: np.ndarray, segmenter: str, name: str) -> np.ndarray:
    """bool, one a byte: the first byte of every word that a segmenter finds.

    Args:
        data: uint8, a whole document.
        segmenter: a key of PACKAGES.
        name: of the document, for messages.

    Raises:
        UserError: the package isn't installed, or the document isn't UTF-8.
    """
    try:
        text = data.tobytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{name}: {segmenter} can't segment it: {error}") from None
    starts = np.zeros(len(data), dtype=bool)
    # a segmenter may leave whitespace out, so each token is looked for from the last one's end
    place = offset = 0
    for token in _cutter(segmenter)(text):
        found = text.index(token, place)
        offset += len(text[place:found].encode("utf-8"))
        starts[offset] |= any(map(str.isalnum, token))
        place, offset = found + len(token), offset + len(token.encode("utf-8"))
    return starts


@cache
def _cutter(segmenter: str) -> Callable:
    """text -> its tokens in order; loading a dictionary takes a second or two."""
    try:
        if segmenter == "jieba":
            module = importlib.import_module("jieba")
            module.setLogLevel("WARNING")
            return module.Tokenizer().cut
        tokenizer = importlib.import_module("janome.tokenizer").Tokenizer()
    except ImportError:
        raise UserError(
            f"evaluation.words: {segmenter} is not installed; "
            f"run: pip install {PACKAGES[segmenter]}"
        ) from None
    return lambda text: tokenizer.tokenize(text, wakati=True)
