"""The random stream: a row's numbers are a function of its key alone."""

import numpy as np
import torch

from rltok_core.data.stream import RandomStream, stream_key


def test_rows_are_independent_of_order_and_length():
    keys = [stream_key(0, "train", 3, row) for row in range(5)]
    u_BS = RandomStream(keys).uniform(64)
    for row, key in enumerate(keys):
        assert torch.equal(RandomStream([key]).uniform(20)[0], u_BS[row, :20])
    assert torch.equal(RandomStream(keys[::-1]).uniform(64), u_BS.flip(0))


def test_channels_and_keys_differ():
    stream = RandomStream([1, 2])
    assert not torch.equal(stream.uniform(32), stream.uniform(32, "other"))
    assert not torch.equal(stream.uniform(32)[0], stream.uniform(32)[1])
    assert torch.equal(stream.uniform(32), RandomStream([1, 2]).uniform(32))


def test_keys_are_stable_and_unambiguous():
    assert stream_key(0, "train", 1, 23) != stream_key(0, "train", 12, 3)
    # printf '0\x1ftrain\x1f1\x1f2' | b2sum -l 64
    assert stream_key(0, "train", 1, 2).to_bytes(8, "little").hex() == "874f45a6d9cc0387"
    assert 0 <= stream_key("x") < 2**64


def test_numbers_are_uniform_and_below_one():
    u = RandomStream(list(range(40))).uniform(5000).double().numpy()
    assert u.min() >= 0 and u.max() < 1
    counts = np.histogram(u, bins=20, range=(0, 1))[0]
    expected = u.size / 20
    assert ((counts - expected) ** 2 / expected).sum() < 43.8  # chi-square, 19 df, p = 0.001
    # rows are not copies or shifts of one another
    rows = np.corrcoef(u)
    assert np.abs(rows - np.eye(40)).max() < 0.07


def test_constant():
    assert (RandomStream([1, 2], constant=0.5).uniform(3) == 0.5).all()
