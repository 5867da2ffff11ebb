"""Where characters and words start in scripts that have no whitespace."""

import sys

import numpy as np
import pytest

from rltok_core.errors import UserError
from rltok_core.evaluation import words
from rltok_core.evaluation.words import character_starts, segmented_words


def of(text: str | bytes) -> np.ndarray:
    return np.frombuffer(text if isinstance(text, bytes) else text.encode(), np.uint8)


def pieces(text: str, segmenter: str) -> list[str]:
    """A text cut at the starts that were found."""
    places = np.flatnonzero(segmented_words(of(text), segmenter, "here")).tolist()
    ends = [*places[1:], len(text.encode())]
    return [text.encode()[a:b].decode() for a, b in zip(places, ends, strict=True)]


@pytest.mark.parametrize("text", ["", "abc", "añ日👍\n\0", "\ufeffש֖"])
def test_characters_start_where_python_says(text):
    want = np.cumsum([0, *(len(c.encode()) for c in text)])[:-1]
    assert np.flatnonzero(character_starts(of(text))).tolist() == want.tolist()


def test_a_lone_continuation_byte_starts_nothing():
    assert character_starts(of(b"a\x80\xe6b")).tolist() == [True, False, True, True]


def test_words_of_textbook_sentences():
    # jieba's README, and the sentence that every Japanese analyser is shown with
    assert pieces("我来到北京清华大学", "jieba") == ["我", "来到", "北京", "清华大学"]
    assert pieces("すもももももももものうち", "janome") == [
        "すもも", "も", "もも", "も", "もも", "の", "うち"
    ]  # fmt: skip


@pytest.mark.parametrize("segmenter", ["jieba", "janome"])
def test_offsets_are_bytes_and_punctuation_and_blanks_are_no_words(segmenter):
    text = "  北京、北京。\r\n\n\u3000abc 👍 北京\n"
    starts = segmented_words(of(text), segmenter, "here")
    assert len(starts) == len(text.encode())
    want = [text.encode().index("北京".encode())]
    want += [want[0] + len("北京、".encode()), text.encode().index(b"abc")]
    want += [text.encode().rindex("北京".encode())]
    assert np.flatnonzero(starts).tolist() == want


def test_faults_say_what_to_do(monkeypatch):
    with pytest.raises(UserError, match="store: document 3: jieba can't segment it"):
        segmented_words(of(b"ab\x80"), "jieba", "store: document 3")
    words._cutter.cache_clear()
    monkeypatch.setitem(sys.modules, "jieba", None)
    with pytest.raises(UserError, match="jieba is not installed; run: pip install jieba=="):
        segmented_words(of("北京"), "jieba", "here")
    words._cutter.cache_clear()
