"""Byte-level BPE, byte-exact and free of any normaliser: training, and boundaries at every rate.

Merges have ranks 0, 1, 2, ... in training order, and the first M of them are a tokenizer too. So
one number a byte describes all of them: its boundary rank, the rank of the merge that removes the
token start there (NEVER if none does). With M merges a token starts at the byte if and only if its
rank is >= M. The number of merges that gives a wanted rate is then read off a histogram.

Ranks are found by the history of the last token. Take the prefix of a word that ends at byte j,
and let M grow: its last token grows too, from the byte alone to ever longer suffixes. Where the
last token starts at s, the tokens before it are those of the prefix that ends at s - 1 (no merge
crosses the join), whose history is known; the next merge is the first that joins the two.

Shapes: N merges, W words, J bytes of all words.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache

import numba
import numpy as np
from tokenizers import Tokenizer, models, trainers

from rltok_core.boundaries.preparation import NEVER

# GPT-2's whitespace pre-tokenization: a space joins the word after it. For bytes \s is ASCII alone.
PRETOKEN = re.compile(rb" ?\S+|\s+(?!\S)|\s+")
RUN = re.compile(rb"\s+|\S+")


def gpt2_alphabet() -> dict[int, str]:
    """GPT-2's printable character for each byte: one byte, one character."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {byte: chr(byte) for byte in printable}
    for byte in range(256):
        table.setdefault(byte, chr(256 + len(table) - len(printable)))
    return table


def train_merges(documents: Iterable[bytes], max_vocabulary: int) -> np.ndarray:
    """Train BPE on the pre-tokens of documents.

    Args:
        documents: raw bytes; nothing is decoded.
        max_vocabulary: 256 bytes and at most this many less 256 merges.

    Returns:
        merges_N2, int32: token ids joined, in order. Byte b is id b, merge r makes id 256 + r.
        A merge that spells a token that is there already is left out: so every token has one
        derivation, and a merge's rank is above those that made its parts.
    """
    table = gpt2_alphabet()
    # the library is given words already split, so that this file has one pre-tokenization
    mapped = lru_cache(1 << 20)(lambda word: word.decode("latin-1").translate(table))
    words = ([mapped(word) for word in PRETOKEN.findall(document)] for document in documents)
    tokenizer = Tokenizer(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=max_vocabulary, initial_alphabet=list(table.values()), show_progress=False
    )
    tokenizer.train_from_iterator(words, trainer)
    known = {character: byte for byte, character in table.items()}
    merges = []
    for left, right in json.loads(tokenizer.to_str())["model"]["merges"]:
        if left + right not in known:
            known[left + right] = 256 + len(merges)
            merges.append((known[left], known[right]))
    return np.array(merges, dtype=np.int32).reshape(-1, 2)


def spell(merges_N2: np.ndarray) -> list[bytes]:
    """The bytes of every token: 256 single bytes, then one a merge."""
    tokens = [bytes([byte]) for byte in range(256)]
    for left, right in merges_N2:
        tokens.append(tokens[left] + tokens[right])
    return tokens


@numba.njit(cache=True)
def _word_ranks(merges_N2, text_J, bounds, whole_J, prefix_J):
    """Fill the ranks of every word: as a whole (whole_J), and of its prefixes (prefix_J)."""
    rank_of = numba.typed.Dict.empty(numba.int64, numba.int64)
    for r in range(len(merges_N2)):
        rank_of[(np.int64(merges_N2[r, 0]) << 32) | merges_N2[r, 1]] = r
    longest = 0
    for w in range(len(bounds) - 1):
        longest = max(longest, bounds[w + 1] - bounds[w])
    # history of the last token of the prefix that ends at j: entries first[j]..first[j + 1] - 1,
    # each a token, its start, and the rank of the merge that replaces it by the next entry's
    first = np.zeros(longest + 1, np.int64)
    token, start, end = np.empty(64, np.int64), np.empty(64, np.int64), np.empty(64, np.int64)
    for w in range(len(bounds) - 1):
        base, length = bounds[w], bounds[w + 1] - bounds[w]
        size = 0
        for j in range(length):
            first[j] = size
            last, at = np.int64(text_J[base + j]), j
            while True:
                if size == len(token):
                    token = np.concatenate((token, np.empty_like(token)))
                    start = np.concatenate((start, np.empty_like(start)))
                    end = np.concatenate((end, np.empty_like(end)))
                rank, joined_at = np.int64(NEVER), at
                if at > 0:
                    for h in range(first[at - 1], first[at]):
                        r = rank_of.get((token[h] << 32) | last, np.int64(NEVER))
                        # at an equal rank the token on the left has joined its own left already
                        if r < end[h]:
                            rank, joined_at = r, start[h]
                            break
                token[size], start[size], end[size] = last, at, rank
                size += 1
                if rank == NEVER:
                    break
                last, at = 256 + rank, joined_at
            prefix_J[base + j] = end[first[j]]
            first[j + 1] = size
        # a token ends at j while one starts at j + 1: for at most whole_J[j + 1] merges
        whole_J[base : base + length] = -1
        alive = np.int64(NEVER)
        for j in range(length - 1, -1, -1):
            begin = np.int64(0)
            for h in range(first[j], first[j + 1]):
                if begin > alive:
                    break
                place = base + start[h]
                whole_J[place] = max(whole_J[place], min(end[h], alive))
                begin = end[h] + 1
            alive = np.int64(whole_J[base + j])


def word_ranks(merges_N2: np.ndarray, words: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Boundary ranks of words, each tokenized by itself.

    Returns:
        whole_J, prefix_J, int32, the words one after the other. whole: of the word. prefix: at
        byte j, of the last byte of the prefix that ends at j (does its last token start there?).
    """
    bounds = np.concatenate([[0], np.cumsum([len(word) for word in words])]).astype(np.int64)
    text_J = np.frombuffer(b"".join(words), np.uint8)
    whole_J, prefix_J = np.empty(len(text_J), np.int32), np.empty(len(text_J), np.int32)
    _word_ranks(merges_N2, text_J, bounds, whole_J, prefix_J)
    return whole_J, prefix_J


def _prefix_words(document: bytes) -> list[bytes]:
    """Words whose prefixes are the last pre-tokens of the document's prefixes.

    While it is read, a run of whitespace is one pre-token, whatever comes next; a word has the
    space before it.
    """
    words = RUN.findall(document)
    for i in range(len(words) - 1, 0, -1):
        if words[i - 1].endswith(b" "):
            words[i] = b" " + words[i]
    return words


def boundary_ranks(merges_N2: np.ndarray, documents: list[bytes], causal: bool) -> np.ndarray:
    """The boundary rank of every byte of documents, int32, one document after the other.

    Args:
        merges_N2: from train_merges.
        documents: raw bytes.
        causal: True: byte i has a boundary if, in the tokenization of the document's prefix that
            ends at i, the last token starts at i. False: a token of the whole starts there.
    """
    split = _prefix_words if causal else PRETOKEN.findall
    index: dict[bytes, int] = defaultdict(lambda: len(index))
    ids = np.array([index[word] for document in documents for word in split(document)], np.int64)
    words = list(index)
    ranks_J = word_ranks(merges_N2, words)[int(causal)]
    length_W = np.array([len(word) for word in words], np.int64)
    # the space that a prefix word borrowed has its own rank already, in the run before
    lent_W = np.array([causal and w[:1] == b" " and not w.isspace() for w in words], np.int64)
    begin_W = np.cumsum(length_W) - length_W + lent_W
    length_W -= lent_W
    if not len(ids):
        return np.zeros(0, np.int32)
    length, begin = length_W[ids], begin_W[ids]
    shift = begin - (np.cumsum(length) - length)
    return ranks_J[np.repeat(shift, length) + np.arange(length.sum())]


class LastToken:
    """What boundary_ranks(causal=True) says of a document's last byte, byte after byte.

    Keeps the histories (see above) of the word that is being read; another document, or a jump,
    starts them anew.
    """

    def __init__(self, merges_N2: np.ndarray):
        self.rank = {(int(a), int(b)): r for r, (a, b) in enumerate(merges_N2)}
        self.word = b""
        # of each prefix of the word: (token, its start, rank of the merge that replaces it)
        self.histories: list[list[tuple[int, int, int]]] = []

    def starts(self, prefix: bytes) -> bool:
        """Whether the last token of the tokenization of `prefix` is its last byte alone."""
        word = _last_word(prefix)
        if self.word != word[: len(self.word)] or not self.word:
            self.word, self.histories = b"", []
        for j in range(len(self.word), len(word)):
            self._read(word[j], j)
        self.word = word
        return self.histories[len(word) - 1][0][2] == NEVER

    def _read(self, byte: int, j: int) -> None:
        last, at, history = byte, j, []
        while True:
            rank, joined = NEVER, at
            if at > 0:
                for token, start, end in self.histories[at - 1]:
                    found = self.rank.get((token, last), NEVER)
                    if found < end:
                        rank, joined = found, start
                        break
            history.append((last, at, rank))
            if rank == NEVER:
                break
            last, at = 256 + rank, joined
        self.histories.append(history)


def _last_word(prefix: bytes) -> bytes:
    """The last of _prefix_words(prefix)."""
    bare = prefix.rstrip()
    if len(bare) < len(prefix):
        return prefix[len(bare) :]
    word = prefix.rsplit(None, 1)[-1]
    return b" " + word if prefix[: len(prefix) - len(word)].endswith(b" ") else word
