"""Segmentation statistics against enumeration and against cases worked out by hand."""

import itertools

import numpy as np
import pytest

from rltok_core.evaluation.segmentation import (
    WHITESPACE,
    Agreement,
    TokenLengths,
    WhitespaceShare,
    matches,
    word_starts,
)


def marks(text: str) -> np.ndarray:
    """'.' is no boundary, '|' is one."""
    return np.array([c == "|" for c in text])


def enumerated_matching(predicted, reference, tolerance) -> int:
    """The largest one-to-one matching, by trying every choice for every reference."""
    places = np.flatnonzero(predicted).tolist()

    def best(refs, free) -> int:
        if not refs:
            return 0
        skipped = best(refs[1:], free)
        taken = [1 + best(refs[1:], free - {q}) for q in free if 0 <= q - refs[0] <= tolerance]
        return max([skipped, *taken])

    return best(np.flatnonzero(reference).tolist(), frozenset(places))


@pytest.mark.parametrize("tolerance", [0, 1, 2, 3])
def test_matching_is_the_largest_by_enumeration(tolerance):
    """All 1024 pairs of five bytes, then random ones of ten."""
    pairs = [
        (np.array(bits[:5], bool), np.array(bits[5:], bool))
        for bits in itertools.product([0, 1], repeat=10)
    ]
    rng = np.random.default_rng(1)
    pairs += [(rng.random(10) < 0.5, rng.random(10) < 0.5) for _ in range(100)]
    for predicted, reference in pairs:
        expected = enumerated_matching(predicted, reference, tolerance)
        assert matches(predicted, reference, tolerance) == expected, (predicted, reference)


@pytest.mark.parametrize(
    "predicted, reference, tolerance, found",
    [
        ("...|.", "..|..", 0, 0),
        ("...|.", "..|..", 1, 1),  # one late
        (".|...", "..|..", 3, 0),  # early never counts
        ("||||||", "..|...", 3, 1),  # a crowd stands for one reference only
        ("...|..", ".||...", 2, 1),  # one boundary can't stand for two references
        ("..||..", ".||...", 1, 2),
        ("....|.", ".|....", 2, 0),  # too late
    ],
)
def test_tolerance_by_hand(predicted, reference, tolerance, found):
    assert matches(marks(predicted), marks(reference), tolerance) == found


def test_precision_recall_f1_and_the_forced_end():
    """The last byte's boundary counts on neither side, in precision, recall or the match."""
    agreement = Agreement(tolerance=0)
    agreement.add(marks("|.|..|"), marks("|..|.|"))  # without the end: 2, 2, 1 in common
    agreement.add(marks("...|"), marks("|..."))  # without the end: 0, 1, 0
    assert (agreement.predicted, agreement.reference, agreement.matched) == (2, 3, 1)
    assert agreement.scores() == {"p": 1 / 2, "r": 1 / 3, "f1": 2 / 5}


def test_nothing_to_compare_is_none_and_not_nan():
    agreement = Agreement()
    agreement.add(marks("|"), marks("|"))
    assert agreement.scores() == {"p": None, "r": None, "f1": None}
    agreement.add(marks("..|"), marks("|.|"))
    assert agreement.scores() == {"p": None, "r": 0.0, "f1": 0.0}
    nothing_to_find = Agreement()
    nothing_to_find.add(marks("|.|"), marks("..|"))
    assert nothing_to_find.scores() == {"p": 0.0, "r": None, "f1": None}


def test_tolerance_leaves_the_denominators_alone():
    agreements = [Agreement(tolerance=k) for k in (0, 1)]
    for agreement in agreements:
        agreement.add(marks("..|.|.||."), marks(".|..|.|.."))
    assert [(a.predicted, a.reference) for a in agreements] == [(4, 3)] * 2
    assert [a.matched for a in agreements] == [2, 3]


def test_word_starts():
    text = "  né\t\nx  yz ".encode()
    found = word_starts(np.frombuffer(text, np.uint8))
    assert np.flatnonzero(found).tolist() == [2, 7, 10]
    # the first byte is bos's already
    assert np.flatnonzero(word_starts(np.frombuffer(b"ab c", np.uint8))).tolist() == [3]
    for n in (0, 1):
        assert word_starts(np.full(n, 97, np.uint8)).tolist() == [False] * n


def test_whitespace_is_pythons_for_bytes():
    assert [b for b in range(256) if WHITESPACE[b]] == [
        b for b in range(256) if bytes([b]).isspace()
    ]


def test_whitespace_share_by_hand():
    """On it, just after it, just before it (doesn't count), far from it; then the forced end."""
    share = WhitespaceShare()
    share.add(np.frombuffer(b"a b c d efg", np.uint8), marks(".|..|.|...|"))
    # spaces on 1 (on it), 3 (4 is marked), 5 (6 is marked), 7 (neither)
    assert (share.whitespace, share.marked) == (4, 3)
    share.add(np.frombuffer(b"ab ", np.uint8), marks("..|"))  # on the forced end: not counted
    share.add(np.frombuffer(b"a b", np.uint8), marks("..|"))  # just before it: not counted
    assert (share.whitespace, share.marked, share.share) == (4, 3, 0.75)
    assert (share.free, share.free_boundaries) == (10 + 2 + 2, 3)
    assert share.chance == pytest.approx(1 - (11 / 14) ** 2, abs=1e-15)


def test_chance_is_what_random_boundaries_get():
    rng = np.random.default_rng(2)
    share = WhitespaceShare()
    for _ in range(200):
        window = np.where(rng.random(500) < 0.3, 32, 97).astype(np.uint8)
        share.add(window, rng.random(500) < 0.2)
    assert share.share == pytest.approx(share.chance, abs=0.01)


def test_no_whitespace_is_none():
    share = WhitespaceShare()
    assert (share.share, share.rate, share.chance) == (None, None, None)
    share.add(np.frombuffer(b"abcd", np.uint8), marks("...|"))
    assert (share.share, share.rate, share.chance) == (None, 0.0, 0.0)


def test_token_lengths_by_hand():
    lengths = TokenLengths()
    lengths.add(marks("..|..||"))  # bos's token holds 2 bytes, then 3, 1 and 1
    assert lengths.counts == {2: 1, 3: 1, 1: 2}
    assert lengths.mean == 7 / 4
    lengths.add(marks("|"))
    assert lengths.counts == {2: 1, 3: 1, 1: 3}


@pytest.mark.parametrize("n_bytes", [1, 2, 64])
def test_K13_all_boundaries_is_one_byte_a_token(n_bytes):
    lengths = TokenLengths()
    lengths.add(np.ones(n_bytes, bool))
    assert lengths.mean == 1.0 and lengths.counts == {1: n_bytes}


def test_every_byte_is_in_one_token():
    rng = np.random.default_rng(3)
    lengths = TokenLengths()
    for n_bytes in range(1, 60):
        boundary = rng.random(n_bytes) < 0.2
        boundary[-1] = True
        lengths.add(boundary)
    assert sum(k * v for k, v in lengths.counts.items()) == sum(range(1, 60))
