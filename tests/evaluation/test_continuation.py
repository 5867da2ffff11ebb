"""Log-likelihoods of continuations by bytes: the seam, batches, windows, and greedy text."""

import math

import numpy as np
import pytest
import torch

from rltok_core.boundaries.contract import HintReader
from rltok_core.config.experiment import load_estimator
from rltok_core.config.schema import EstimatorEntry
from rltok_core.data.batch import Batch
from rltok_core.data.batches import evaluation_key
from rltok_core.data.stream import RandomStream
from rltok_core.data.vocabulary import BOS, N_SPECIAL
from rltok_core.errors import UserError
from rltok_core.evaluation.compression import evaluation_bits
from rltok_core.evaluation.continuation import Continuations, _before
from rltok_core.evaluation.subject import Subject

SMALL = {"window": 3, "gamma": 0.9, "softcap": 6.0}
POLICY = load_estimator(EstimatorEntry(name="score_function", params=SMALL))
SCORE_FUNCTION = (POLICY.cls, POLICY.params)
UNIFORM = ("rltok_core.boundaries.uniform:Uniform", {})
BPE = {"max_vocabulary": 300, "train_bytes": 10, "sequence_bytes": 0}
RNG = np.random.default_rng(5)
# K25: 1, 3, 64, 65 bytes, one ending in NUL, one of emoji only
K25 = [b"Q", b"ab\0", "👍🎉🙂🚀".encode() * 4, RNG.integers(0, 256, 65, np.uint8).tobytes()]


@pytest.fixture
def build(make_run, network):
    def make(method=SCORE_FUNCTION, batch_size=4, zero=False, reader=None, **run):
        config = make_run(*method, **run)
        torch.manual_seed(0)  # an estimator's own first weights
        model = network(config)
        if zero:
            torch.nn.init.zeros_(model.head.weight)
        subject = Subject(config, model, config.id, "method", None, {"seconds": 1})
        return Continuations(subject, reader, batch_size)

    return make


def test_K23_the_seam_of_a_uniform_model(build):
    pairs = [(b"The cat", b" sat"), (b"The cat ", b"sat"), (b"", b"hi"), (b"her", b" drapes")]
    found = build(zero=True).score(pairs)
    expected = [-22.180710, -16.635532, -11.090355, -38.816242]
    for item, nats, (_, continuation) in zip(found, expected, pairs, strict=True):
        assert item.nats == pytest.approx(nats, abs=2e-6)
        assert -item.nats / math.log(2) / len(continuation) == pytest.approx(8, abs=1e-6)
        assert item.n_bytes == len(continuation) and item.cut == 0


def test_K23_an_empty_continuation_is_an_error_that_names_the_request(build):
    with pytest.raises(UserError, match="request 1: empty continuation"):
        build().score([(b"a", b"b"), (b"a", b"")])


@pytest.mark.parametrize("method", [SCORE_FUNCTION, UNIFORM])
@pytest.mark.parametrize("seq_len", [32, 160])
def test_K25_batch_size_and_order_change_nothing(method, seq_len, build):
    pairs = [(context, text) for context in (b"", b"Once upon a time ") for text in K25]
    first = build(method, 1, seq_len=seq_len).score(pairs)
    for size in (2, 4):
        other = build(method, size, seq_len=seq_len)
        assert np.allclose([x.nats for x in other.score(pairs)], [x.nats for x in first], atol=1e-5)
        back = other.score(pairs[::-1])[::-1]
        assert np.allclose([x.nats for x in back], [x.nats for x in first], atol=1e-5)
        texts = [text for _, text in pairs]
        rolling = build(method, 1, seq_len=seq_len).rolling(texts)
        assert np.allclose(other.rolling(texts[::-1])[::-1], rolling, atol=1e-5)


def by_hand(continuations, text, key, first):
    """log p of text[first:], one row, one byte at a time in float64."""
    run = continuations.run
    ids = torch.tensor([[BOS, *(b + N_SPECIAL for b in text)]])
    batch = Batch(ids, torch.tensor([ids.shape[1]]), RandomStream([key]))
    with torch.no_grad():
        logits = continuations.model(batch, run.training.target_rate).logits_BSC[0].double()
    return sum(float(logits[p].log_softmax(-1)[text[p]]) for p in range(first, len(text)))


def test_streams_are_the_contexts_and_long_contexts_lose_their_left(build):
    import hashlib

    continuations = build()
    context, text = b"a context that is longer than a window", b" and on"
    digest = hashlib.sha256(context).hexdigest()
    key = evaluation_key(0, digest, 0)
    kept = (context + text)[-31:]
    (found,) = continuations.score([(context, text)])
    assert found.cut == len(context) + len(text) - 31
    expected = by_hand(continuations, kept, key, 31 - len(text))
    assert found.nats == pytest.approx(expected, abs=1e-5)


def test_a_continuation_longer_than_a_window_is_all_scored(build):
    (found,) = build(zero=True).score([(b"context", b"x" * 100)])
    assert found.nats == pytest.approx(-100 * math.log(256), rel=1e-6)
    assert (found.n_bytes, found.cut) == (100, 7)


def test_without_a_context_it_is_the_text_alone_whatever_is_scored_with_it(build):
    """log p(a b) = log p(a) + log p(b | a) where the streams are the same: a rule without draws."""
    continuations = build(("rltok_core.boundaries.hnet:HNet", {"ratio_weight": 0.03}))
    whole, first, second = continuations.score(
        [(b"", b"the cat"), (b"", b"the"), (b"the", b" cat")]
    )
    assert whole.nats == pytest.approx(first.nats + second.nats, abs=1e-5)


def test_rolling_is_the_evaluation(build):
    continuations = build()
    text = "It was a bright cold day in April 🎉, and the clocks".encode()
    (nats,) = continuations.rolling([text])
    bits = evaluation_bits(continuations.subject, None, text)
    assert -nats / math.log(2) == pytest.approx(bits, rel=1e-9)


@pytest.mark.parametrize(
    "method", [SCORE_FUNCTION, ("rltok_core.boundaries.hnet:HNet", {"ratio_weight": 0.03})]
)
def test_what_is_written_is_the_likeliest(method, build):
    """Scored as a continuation of its context it is greedy; any other last byte isn't."""
    continuations = build(method, batch_size=2, seq_len=48)
    contexts = [b"The cat", b"", b"\xff\x00 and", b"another one"]
    written = continuations.write(contexts, [[]] * 4, 9)
    assert [len(text) for text in written] == [9] * 4
    scored = continuations.score(list(zip(contexts, written, strict=True)))
    assert all(item.greedy for item in scored)
    wrong = [text[:-1] + bytes([text[-1] ^ 1]) for text in written]
    assert not any(x.greedy for x in continuations.score(list(zip(contexts, wrong, strict=True))))
    # alone, and in another order
    assert build(method, 1, seq_len=48).write(contexts[::-1], [[]] * 4, 9) == written[::-1]
    # what ends it is left out
    stop = written[0][3:5]
    (cut,) = continuations.write(contexts[:1], [[stop]], 9)
    assert cut == written[0][: written[0].find(stop)]


def test_hints_go_with_the_text(build):
    reader = HintReader(
        lambda documents: np.frombuffer(b"".join(documents), np.uint8) == 32,
        lambda prefix: prefix[-1:] == b" ",
    )
    method = ("rltok_core.boundaries.bpe_causal:BpeCausal", BPE)
    continuations = build(method, reader=reader)
    written = continuations.write([b"a b c"], [[]], 5)
    (found,) = continuations.score([(b"a b c", written[0])])
    assert found.greedy


def test_generation_refuses_what_it_cannot_do(build):
    with pytest.raises(UserError, match="at most 31 bytes"):
        build().write([b"a"], [[]], 32)
    ahead = build(("rltok_core.boundaries.bpe:Bpe", BPE), reader=HintReader(lambda d: None, None))
    with pytest.raises(UserError, match="looks ahead"):
        ahead.write([b"a"], [[]], 5)


def test_the_first_stop_counts():
    assert _before(b"ab\ncd", [b"d", b"\n"]) == b"ab"
    assert _before(b"abc", [b"\n"]) == b"abc" and _before(b"abc", []) == b"abc"
