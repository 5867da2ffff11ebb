"""Bits per byte: the denominator, and corpus against mean over documents."""

import math
from fractions import Fraction

import numpy as np
import pytest

from rltok_core.evaluation.bits import LN2, CorpusScore, bits_per_byte


def test_K19_denominator_is_raw_bytes():
    text = "añ日👍".encode() + b"\x80"
    score = CorpusScore()
    score.document(0).add(np.full(len(text), math.log(256)), np.full(len(text), LN2), 3)
    assert score.n_bytes == len(text) == 11
    assert score.document(0).bits == pytest.approx(88, abs=1e-12)
    assert f"{score.bpb:.6f}" == "8.000000"
    assert score.bpb_early == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("window", [1, 3, 8, 992])
def test_K21_corpus_and_mean_over_documents(window):
    """8 bytes at 2.0 bits and 992 at 1.0, in windows of any size and in any order."""
    for order in (1, -1):
        score = CorpusScore()
        for index, n_bytes, bits in [(4, 8, 2.0), (2, 992, 1.0)][::order]:
            nats = np.full(n_bytes, bits * LN2)
            for start in range(0, n_bytes, window):
                part = nats[start : start + window]
                score.document(index).add(part, part, 1)
        assert score.bpb == pytest.approx(1.008, abs=1e-12)
        assert score.bpb_mean_documents == pytest.approx(1.5, abs=1e-12)
        assert [index for index, _ in score.in_order()] == [2, 4]
        assert score.document(2).windows == -(-992 // window)


def test_sums_are_float64_though_the_scores_are_float32():
    """Ours agrees with exact rationals; a running float32 sum wouldn't."""
    nats = np.random.default_rng(0).random(30_000).astype(np.float32)
    score = CorpusScore()
    for part in np.split(nats, 30):
        score.document(0).add(part, part, 0)
    exact = float(sum((Fraction(float(x)) for x in nats), Fraction(0)))
    assert score.document(0).nats == pytest.approx(exact, rel=1e-14)


@pytest.mark.parametrize("n_bytes", [0, -1, 2.0, True, None])
def test_bytes_are_a_positive_integer(n_bytes):
    with pytest.raises(ValueError, match="whole number of bytes"):
        bits_per_byte(1.0, n_bytes)


@pytest.mark.parametrize("nats", [math.nan, math.inf])
def test_bits_are_finite(nats):
    with pytest.raises(ValueError, match="not finite"):
        bits_per_byte(nats, 3)
