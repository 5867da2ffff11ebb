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


def test_draws_of_a_row_differ_and_the_first_is_the_streams_own():
    stream = RandomStream([1, 2, 3])
    three = stream.repeated(3, antithetic=False).uniform(32).chunk(3)
    assert torch.equal(three[0], stream.uniform(32))
    assert torch.equal(three[1], stream.repeated(2, antithetic=False).uniform(32)[3:])
    correlation = np.corrcoef(torch.cat([u_BS.reshape(1, -1) for u_BS in three]).numpy())
    assert np.abs(correlation - np.eye(3)).max() < 0.3


def test_antithetic_draws_mirror_the_one_before_on_the_streams_grid():
    stream = RandomStream([1, 2])
    u_BS = stream.repeated(4, antithetic=True).uniform(2000).double()
    first, second, third, fourth = u_BS.chunk(4)
    assert torch.equal(first, stream.uniform(2000).double())
    assert torch.equal(first + second, torch.full_like(first, 1 - 2.0**-24))
    assert torch.equal(third + fourth, torch.full_like(first, 1 - 2.0**-24))
    assert not torch.equal(first, third)
    assert u_BS.min() >= 0 and u_BS.max() < 1 and not (u_BS * 2**24 % 1).any()


def test_constant():
    assert (RandomStream([1, 2], constant=0.5).uniform(3) == 0.5).all()
