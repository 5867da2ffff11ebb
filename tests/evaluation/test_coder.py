"""The arithmetic coder by itself: exact inverses, and code lengths against Shannon's."""

import numpy as np
import pytest

from rltok_core.evaluation.coder import TOTAL, Decoder, Encoder, cumulative_counts


def code(counts, data):
    encoder = Encoder()
    for below, byte in zip(counts, data, strict=True):
        encoder.encode(below, int(byte))
    return encoder.finish()


@pytest.mark.parametrize("scale", [0.0, 1.0, 8.0, 60.0])
def test_counts_are_a_distribution_close_to_the_softmax(scale):
    logits = np.random.default_rng(0).normal(0, scale, (50, 256))
    below = cumulative_counts(logits)
    assert (below[:, 0] == 0).all() and (below[:, -1] == TOTAL).all()
    count = np.diff(below)
    assert (count >= 1).all()
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    assert np.abs(count / TOTAL - p).max() < 257 / TOTAL + 1e-15


@pytest.mark.parametrize("scale", [0.0, 1.0, 8.0, 60.0])
@pytest.mark.parametrize("n", [1, 2, 1000])
def test_round_trip_and_length(scale, n):
    rng = np.random.default_rng(n)
    counts = cumulative_counts(rng.normal(0, scale, (n, 256)))
    data = [rng.choice(256, p=np.diff(below) / TOTAL) for below in counts]
    packed = code(counts, data)
    decoder = Decoder(packed)
    assert [decoder.decode(below) for below in counts] == data
    bits = -sum(np.log2(np.diff(b)[x] / TOTAL) for b, x in zip(counts, data, strict=True))
    assert bits - 1e-6 <= 8 * len(packed) < bits * 1.0001 + 10


def test_the_unlikeliest_bytes_survive():
    """Every byte one with a single count of 2^48: 48 bits each."""
    logits = np.full((300, 256), -1e4)
    logits[:, 7] = 0.0
    counts = cumulative_counts(logits)
    data = np.random.default_rng(1).integers(0, 7, 300).tolist()
    packed = code(counts, data)
    assert len(packed) == pytest.approx(300 * 6, abs=2)
    decoder = Decoder(packed)
    assert [decoder.decode(below) for below in counts] == data


def test_a_long_straddle_of_the_middle():
    """The likely byte lies around one half: the coder can't settle a bit for a long time."""
    below = np.linspace(0, TOTAL, 257).astype(np.int64)
    below[1:128], below[128:256] = np.arange(1, 128), TOTAL - np.arange(128, 0, -1)
    data = [127] * 4000 + [3]
    packed = code([below] * len(data), data)
    decoder = Decoder(packed)
    assert [decoder.decode(below) for _ in data] == data
