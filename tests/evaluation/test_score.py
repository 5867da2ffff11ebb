"""Scores of windows don't depend on batch size, order, padding or neighbours (K25, promise 7)."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from rltok_core.config.strict import read_yaml
from rltok_core.data.batches import Windows
from rltok_core.data.store import ByteStore
from rltok_core.evaluation.bits import CorpusScore
from rltok_core.evaluation.score import score_windows, spread
from rltok_core.model.unet import target_logp

ESTIMATORS = Path(__file__).parents[2] / "configs" / "estimators"
METHODS = {
    "uniform": ("rltok_core.boundaries.uniform:Uniform", {}),
    "score_function": (
        "rltok_core.boundaries.score_function:ScoreFunction",
        read_yaml(ESTIMATORS / "score_function.yaml")["params"],
    ),
}
RNG = np.random.default_rng(5)
K25 = [
    b"Q",
    b"ab\0",
    "👍🎉🙂🚀".encode() * 4,  # 64 bytes, emoji only
    RNG.integers(0, 256, 65, dtype=np.uint8).tobytes(),
]


def scores(model, store, run, batch_size, order=1) -> list:
    windows = Windows(store, run.training.seq_len, run.data.windows, None)
    indices = list(range(len(windows)))[::order]
    seed, rate = run.evaluation.stream_seed, run.training.target_rate
    return list(score_windows(model, windows, indices, seed, rate, batch_size))


def by_document(found) -> dict[int, tuple[float, float]]:
    corpus = CorpusScore()
    for score in found:
        corpus.document(score.document).add(score.nats, score.nats_early, 0)
    return {i: (score.nats, score.nats_early) for i, score in corpus.in_order()}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seq_len", [80, 33])  # one window a document, or several
def test_K25_batch_size_and_order(write_data, make_run, network, method, seq_len):
    cls, params = METHODS[method]
    run = make_run(cls, params, seq_len=seq_len)
    store = ByteStore.open(write_data(run, K25) / "test")
    model = network(run)
    alone = by_document(scores(model, store, run, 1))
    assert list(alone) == [0, 1, 2, 3]
    for batch_size, order in [(2, 1), (4, 1), (16, 1), (1, -1), (2, -1), (4, -1)]:
        found = by_document(scores(model, store, run, batch_size, order))
        assert list(found) == list(alone)
        for document, nats in alone.items():
            assert found[document] == pytest.approx(nats, abs=1e-5), (batch_size, order, document)


@pytest.mark.parametrize("method", METHODS)
def test_scores_are_the_softmax_over_bytes(write_data, make_run, network, method):
    """Against log_softmax in float64 of the logits of each window alone, byte by byte."""
    cls, params = METHODS[method]
    run = make_run(cls, params, seq_len=33)
    store = ByteStore.open(write_data(run, K25) / "test")
    model = network(run)
    windows = Windows(store, 33, "all", None)
    for index, score in enumerate(scores(model, store, run, 4)):
        batch = windows.batch([index], [windows.evaluation_key(index, 0)])
        with torch.no_grad():
            prediction = model(batch, run.training.target_rate)
        text = K25[score.document][score.slice]
        logp = F.log_softmax(prediction.logits_BSC[0].double(), dim=-1)
        expected = [-float(logp[i, byte]) for i, byte in enumerate(text)]
        assert score.nats.tolist() == pytest.approx(expected, abs=1e-4)
        boundaries = prediction.proposal.boundary_BS[0, 1 : len(text) + 1]
        assert score.boundary.tolist() == boundaries.tolist()
        assert len(score.nats) == len(text) and score.boundary[-1]


def test_boundaries_depend_on_the_document_alone(write_data, make_run, network):
    """The same text elsewhere in another split draws the same boundaries."""
    run = make_run(*METHODS["score_function"], seq_len=33)
    model = network(run)
    first = scores(model, ByteStore.open(write_data(run, K25) / "test"), run, 4)
    moved = [b"something else", K25[3], b"more"]
    store = ByteStore.open(write_data(run, moved) / "test")
    there = [s for s in scores(model, store, run, 2) if s.document == 1]
    here = [s for s in first if s.document == 3]
    assert len(here) == len(there) == 3
    for one, other in zip(here, there, strict=True):
        assert one.boundary.tolist() == other.boundary.tolist()
        assert one.nats == pytest.approx(other.nats, abs=1e-5)


def test_scoring_leaves_the_model_trainable(write_data, make_run, network):
    """What the model keeps from scoring (masks, tables) can be used with gradients afterwards."""
    run = make_run(*METHODS["score_function"], seq_len=33)
    store = ByteStore.open(write_data(run, K25) / "test")
    model = network(run)
    scores(model, store, run, 4)
    batch = Windows(store, 33, "all", None).batch([0, 1, 2], [1, 2, 3])
    logp_BS, _ = target_logp(model(batch, run.training.target_rate), batch)
    logp_BS.sum().backward()
    assert torch.isfinite(model.embedding.weight.grad).all()


@pytest.mark.parametrize("n, at_most", [(0, 5), (3, 5), (5, 5), (7, 5), (1000, 200)])
def test_spread_is_even(n, at_most):
    chosen = spread(n, at_most)
    assert len(chosen) == min(n, at_most) == len(set(chosen))
    assert chosen == sorted(chosen) and all(0 <= i < n for i in chosen)
    gaps = np.diff([*chosen, n])
    assert len(gaps) == 0 or gaps.max() - gaps.min() <= 1
