"""The planted language: a text whose entropy and right boundaries are known exactly.

Words. `prefixes` x `endings` code words: a prefix of `prefix_bytes` bytes and a last byte. Every
proper prefix of a word is shared by `endings` words, so that none is known before its last byte.
Grammar. The next word is one of two equally likely successors of the word `lag` back. The two
successor maps are permutations that differ everywhere: exactly one bit a word, and the uniform
distribution is stationary. Each document is a cut of a fresh chain, which begins at the start of
a word with its first `lag` words uniform.
Filler. After each word, n uniform on 1..filler_max bytes of "." (repeated) or random digits
(random), or nothing (none). Filler and code alphabets are disjoint, and without filler all words
are equally long: so the text has one parse, and the entropy of the bytes is that of the choices.
"""

import math
from collections.abc import Iterator

import numpy as np

from rltok_core.config.sources import (
    CODE_ALPHABET,
    RANDOM_FILLER,
    REPEATED_FILLER,
    PlantedSource,
)
from rltok_core.data.documents import Document, Log

CHUNK = 4096  # documents made at once


class Language:
    """Lexicon and grammar of a PlantedSource.

    Shapes: W words, L bytes a word, N documents, T words a document, D bytes a document.

    Attributes:
        words_WL: uint8, the code words.
        successor_2W: int64, the two permutations.
    """

    def __init__(self, source: PlantedSource):
        self.source = source
        rng = np.random.default_rng([source.seed, 0])
        codes = rng.choice(source.alphabet**source.prefix_bytes, source.prefixes, replace=False)
        powers = source.alphabet ** np.arange(source.prefix_bytes - 1, -1, -1)
        prefix_PL = codes[:, None] // powers % source.alphabet
        last_PE = np.stack(
            [
                rng.choice(source.alphabet, source.endings, replace=False)
                for _ in range(source.prefixes)
            ]
        )
        symbol_WL = np.concatenate(
            [np.repeat(prefix_PL, source.endings, axis=0), last_PE.reshape(-1, 1)], axis=1
        )
        self.words_WL = np.frombuffer(CODE_ALPHABET, np.uint8)[symbol_WL]
        first_W = rng.permutation(len(self.words_WL))
        second_W = rng.permutation(len(self.words_WL))
        while (first_W == second_W).any():
            second_W = rng.permutation(len(self.words_WL))
        self.successor_2W = np.stack([first_W, second_W])

    @property
    def filler_max(self) -> int:
        """The longest filler; 0 without filler."""
        return 0 if self.source.filler == "none" else self.source.filler_max

    @property
    def mean_cycle_bytes(self) -> float:
        """Mean length of a word and the filler after it."""
        return self.words_WL.shape[1] + (1 + self.filler_max) / 2 * (self.filler_max > 0)

    @property
    def entropy_bits_per_byte(self) -> float:
        """The exact entropy rate: bits of choice a word / mean bytes a word (renewal-reward).

        One bit for the successor, log2(filler_max) for the filler's length, log2(10) for each
        random filler byte.
        """
        bits = 1.0
        if self.filler_max:
            bits += math.log2(self.filler_max)
        if self.source.filler == "random":
            bits += (1 + self.filler_max) / 2 * math.log2(len(RANDOM_FILLER))
        return bits / self.mean_cycle_bytes

    def sample(self, documents: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """data_ND and truth_ND, both uint8; truth is 1 on the last byte of each code word."""
        size, length = self.source.document_bytes, self.words_WL.shape[1]
        shortest = length + (self.filler_max > 0)
        word_NT = rng.integers(len(self.words_WL), size=(documents, -(-size // shortest)))
        branch_NT = rng.integers(2, size=word_NT.shape)
        for t in range(self.source.lag, word_NT.shape[1]):
            past_N = word_NT[:, t - self.source.lag]
            word_NT[:, t] = self.successor_2W[branch_NT[:, t], past_N]
        cycle_NT = np.full(word_NT.shape, length)
        if self.filler_max:
            cycle_NT += rng.integers(1, self.filler_max + 1, size=word_NT.shape)
        start_NT = cycle_NT.cumsum(1) - cycle_NT

        if self.source.filler == "random":
            filler = np.frombuffer(RANDOM_FILLER, np.uint8)
            data_ND = filler[rng.integers(len(filler), size=(documents, size))]
        else:
            data_ND = np.full((documents, size), REPEATED_FILLER[0], np.uint8)
        truth_ND = np.zeros_like(data_ND)
        for j in range(length):
            n, t = np.nonzero(start_NT + j < size)
            data_ND[n, start_NT[n, t] + j] = self.words_WL[word_NT[n, t], j]
        truth_ND[n, start_NT[n, t] + length - 1] = 1  # n, t of the last byte
        return data_ND, truth_ND

    def true_model_bits(self, data: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """-log2 of each byte's probability under the true model, given its document so far.

        No model can do better in expectation. The mean over a document lies above the entropy
        rate, since its first `lag` words have no past.

        Args:
            data: uint8, documents one after the other.
            offsets: int64, their bounds (documents + 1).

        Returns:
            float64, one a byte.

        Raises:
            ValueError: the language can't say this.
        """
        bits = np.empty(len(data))
        for start in range(0, len(offsets) - 1, CHUNK):  # bounds the memory
            bounds = offsets[start : start + CHUNK + 1]
            part = slice(bounds[0], bounds[-1])
            bits[part] = self._true_model_bits(np.asarray(data[part]), bounds - bounds[0])
        return bits

    def _true_model_bits(self, data: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        length = self.words_WL.shape[1]
        index = np.arange(len(data))
        document = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        first = index == offsets[document]
        bits = np.zeros(len(data))
        if self.filler_max:
            code = np.isin(data, np.frombuffer(CODE_ALPHABET, np.uint8))
            turn = first | (code != np.roll(code, 1))
            place = index - np.maximum.accumulate(np.where(turn, index, 0))  # within its run
            gaps = index[~code & turn]
            self._check(
                code | np.isin(data, np.frombuffer(self._filler, np.uint8)),
                place < np.where(code, length, self.filler_max),
                ~first[gaps] & (place[gaps - 1] == length - 1),  # filler follows a whole word
            )
            # the k-th byte of a run of filler (k = place + 1) says "no word yet"; it is certain
            # after a word, and a word after k bytes has the probability of the length k
            more, longest = ~code & (place > 0), self.filler_max
            bits[more] = -np.log2((longest - place[more]) / (longest - place[more] + 1))
            if self.source.filler == "random":
                bits[~code] += math.log2(len(RANDOM_FILLER))
            starts = index[code & turn]
            after = starts[~first[starts]]
            bits[after] += np.log2(longest - place[after - 1])
        else:
            place = index - offsets[document]
            starts = index[place % length == 0]

        end = offsets[document[starts] + 1]
        count = np.bincount(document[starts], minlength=len(offsets) - 1)
        number = np.arange(len(starts)) - np.repeat(count.cumsum() - count, count)
        size = np.minimum(end - starts, length)  # the last word of a document may be cut
        # the words still possible (rows: words of the text), narrowed byte by byte
        possible = self._possible(data, starts, size, number)
        for j in range(length):
            here = np.nonzero(size > j)[0]
            before = possible[here].sum(1)
            possible[here] &= self.words_WL[None, :, j] == data[starts[here] + j][:, None]
            now = possible[here].sum(1)
            self._check(now > 0)
            bits[starts[here] + j] += np.log2(before / now)
        return bits

    @staticmethod
    def _check(*conditions: np.ndarray) -> None:
        """Every text of the language meets these."""
        if not all(condition.all() for condition in conditions):
            raise ValueError("this text is not of the planted language")

    @property
    def _filler(self) -> bytes:
        return RANDOM_FILLER if self.source.filler == "random" else REPEATED_FILLER

    def _possible(self, data, starts, size, number) -> np.ndarray:
        """bool (words of the text, W): the words that the past allows."""
        length, lag = self.words_WL.shape[1], self.source.lag
        possible = np.ones((len(starts), len(self.words_WL)), dtype=bool)
        index = np.nonzero(number >= lag)[0]
        past = starts[index - lag]  # these words are whole, since others follow
        same = np.ones((len(index), len(self.words_WL)), dtype=bool)
        for j in range(length):
            same &= self.words_WL[None, :, j] == data[past + j][:, None]
        self._check(same.any(1))
        word = same.argmax(1)
        possible[index] = False
        for successor_W in self.successor_2W:
            possible[index, successor_W[word]] = True
        return possible


def read_planted(source: PlantedSource, log: Log) -> Iterator[Document]:
    """The documents of a planted source: a function of its fields alone."""
    language = Language(source)
    log.sources.append({"name": "planted", "version": "1", "sha256": None})
    for chunk, start in enumerate(range(0, source.documents, CHUNK)):
        rng = np.random.default_rng([source.seed, 1, chunk])
        # a chunk is always whole, so that more documents begin with the same ones
        data_ND, truth_ND = language.sample(CHUNK, rng)
        for i in range(min(CHUNK, source.documents - start)):
            yield Document(f"planted:{start + i}", data_ND[i].tobytes(), truth_ND[i])
