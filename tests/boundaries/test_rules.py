"""Each rule against its definition, written out byte by byte."""

import numpy as np
import pytest
import torch

from rltok_core.boundaries.bpe import Bpe
from rltok_core.boundaries.no_mid import NoMid
from rltok_core.boundaries.oracle import Oracle
from rltok_core.boundaries.stride import Stride
from rltok_core.boundaries.uniform import Uniform
from rltok_core.boundaries.whitespace import Whitespace
from rltok_core.data.batch import Batch
from rltok_core.data.stream import RandomStream
from rltok_core.data.vocabulary import BOS, N_SPECIAL, PAD
from rltok_core.errors import UserError


def make_batch(documents, keys=None, constant=None, hints=None):
    width = max(len(d) for d in documents) + 1
    ids_BS = torch.full((len(documents), width), PAD)
    for row, document in enumerate(documents):
        ids_BS[row, : len(document) + 1] = torch.tensor([BOS, *(b + N_SPECIAL for b in document)])
    length_B = torch.tensor([len(d) + 1 for d in documents])
    stream = RandomStream(keys or list(range(len(documents))), constant=constant)
    return Batch(ids_BS, length_B, stream, hints)


def propose(cls, batch, rate, **params):
    x_BSD = torch.zeros(*batch.ids_BS.shape, 4)
    return cls(params, 4, rate, batch.ids_BS.shape[1]).propose(x_BSD, batch, rate)


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.2, 0.37, 0.9, 1.0])
def test_uniform_has_exactly_round_of_rate_times_length(rate):
    documents = [b"x" * n for n in (0, 1, 2, 9, 63, 254)]
    proposal = propose(Uniform, make_batch(documents), rate)
    for row, document in enumerate(documents):
        n = len(document) + 1
        expected = min(n, max(round(rate * n), min(2, n)))
        assert proposal.boundary_BS[row].sum() == expected
        assert proposal.boundary_BS[row, 0] and proposal.boundary_BS[row, n - 1]
        assert not proposal.boundary_BS[row, n:].any()
        assert proposal.prob_BS[row, :n].sum().item() == pytest.approx(expected)


def test_uniform_positions_are_uniform_and_independent_of_each_other():
    rows, n = 4000, 41
    boundary_BS = propose(Uniform, make_batch([b"x" * (n - 1)] * rows), 0.2).boundary_BS
    share_S = boundary_BS[:, 1:-1].double().mean(0)
    expected = (round(0.2 * n) - 2) / (n - 2)
    noise = (expected * (1 - expected) / rows) ** 0.5
    assert (share_S - expected).abs().max() < 4.5 * noise
    # pairs of neighbours: sampling without replacement
    both = (boundary_BS[:, 1:-2] & boundary_BS[:, 2:-1]).double().mean()
    assert both.item() == pytest.approx(expected * (round(0.2 * n) - 3) / (n - 3), rel=0.06)


def test_uniform_under_a_constant_stream_is_spread_evenly():
    """The threshold evaluation has no random numbers: not the first n positions."""
    boundary_BS = propose(Uniform, make_batch([b"x" * 255], constant=0.5), 0.2).boundary_BS
    gaps = np.diff(np.flatnonzero(boundary_BS[0]))
    assert boundary_BS.sum() == 51 and gaps.max() <= 13


def test_stride_counts_from_bos():
    boundary_BS = propose(Stride, make_batch([b"x" * 22, b"x" * 3]), 0.2).boundary_BS
    assert boundary_BS[0].nonzero().flatten().tolist() == [0, 5, 10, 15, 20, 22]
    assert boundary_BS[1].nonzero().flatten().tolist() == [0, 3]


@pytest.mark.parametrize("text", [b"a bc  d\t\ne\r\n f\x0bg\x0c h ", b" \n x", "né 日 本".encode()])
def test_whitespace_marks_the_first_byte_of_every_word(text):
    boundary_BS = propose(Whitespace, make_batch([text]), 0.2).boundary_BS
    starts = {0, len(text)}
    for i in range(1, len(text)):
        if text[i - 1 : i].isspace() and not text[i : i + 1].isspace():
            starts.add(i + 1)
    assert set(boundary_BS[0].nonzero().flatten().tolist()) == starts


@pytest.mark.parametrize("cls", [Oracle, Bpe])
def test_known_boundaries_are_taken_as_they_are(cls):
    params = {"max_vocabulary": 300, "train_bytes": 1, "sequence_bytes": 0} if cls is Bpe else {}
    hints = torch.tensor([[0, 0, 1, 0, 1, 0], [0, 1, 0, 0, 1, 1]], dtype=torch.bool)
    batch = make_batch([b"abcde", b"abc"], hints=hints)
    proposal = propose(cls, batch, 0.2, **params)
    expected = [[1, 0, 1, 0, 1, 1], [1, 1, 0, 1, 0, 0]]
    assert proposal.boundary_BS.int().tolist() == expected
    assert torch.equal(proposal.prob_BS, proposal.boundary_BS.float())
    assert proposal.free_BS.int().tolist() == [[0, 1, 1, 1, 1, 0], [0, 1, 1, 0, 0, 0]]
    with pytest.raises(UserError, match="needs known boundaries"):
        propose(cls, make_batch([b"abcde"]), 0.2, **params)


def test_no_mid_has_the_forced_ends_alone():
    boundary_BS = propose(NoMid, make_batch([b"abcd", b"", b"a"]), 0.2).boundary_BS
    assert boundary_BS.int().tolist() == [[1, 0, 0, 0, 1], [1, 0, 0, 0, 0], [1, 1, 0, 0, 0]]


def test_a_rule_takes_no_parameters():
    with pytest.raises(TypeError, match="Stride takes no parameters, got .*speed"):
        Stride({"speed": 1}, 4, 0.2, 16)
