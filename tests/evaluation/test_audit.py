"""The leak audit: silent for what is causal, loud for what isn't, whatever the way."""

import numpy as np
import pytest
import torch

from rltok_core.boundaries.contract import Estimator, HintReader, fixed_proposal
from rltok_core.boundaries.registry import build_estimator
from rltok_core.data.batches import Windows
from rltok_core.data.store import ByteStore
from rltok_core.data.vocabulary import N_SPECIAL
from rltok_core.evaluation.audit import POSITIONS, audit
from rltok_core.evaluation.text import text_windows
from rltok_core.model.unet import UNet

POOLING = ("rltok_core.boundaries.pooling:Pooling", {"temperature": 1.0, "prior_weight": 1.0})
TEXT = b"The cat sat on the mat, and the other cat sat there, too. " * 4
SPACE = ord(" ")


class Peeks(Estimator):
    """A boundary before each space: it has looked at the next byte."""

    causal = True  # so it says

    def propose(self, x_BSD, batch, target_rate):
        space_BS = batch.ids_BS == N_SPECIAL + SPACE
        return fixed_proposal(torch.roll(space_BS, -1, 1), batch)


def before_space(documents):
    return np.concatenate(
        [np.append(np.frombuffer(d, np.uint8)[1:], 0) == SPACE for d in documents]
    )


def after_space(documents):
    return np.concatenate(
        [np.append(0, np.frombuffer(d, np.uint8)[:-1]) == SPACE for d in documents]
    )


def audited(model, windows, reader=None):
    return audit(model, windows, reader, 0.2, stream_seed=0, device="cpu")


def untouched(run):
    """A network whose token level matters, with an estimator of the test's own."""
    return UNet(run.model, Peeks({}, run.model.d_model, 0.2, run.training.seq_len), 0).eval()


@pytest.mark.parametrize(
    "cls, params",
    [("rltok_core.boundaries.uniform:Uniform", {}), POOLING,
     ("rltok_core.boundaries.hnet:HNet", {"ratio_weight": 0.03})],
)  # fmt: skip
def test_nothing_leaks_from_a_causal_method(cls, params, make_run, network):
    run = make_run(cls, params, seq_len=128)
    found = audited(network(run), text_windows([TEXT], run, None))
    assert found["max_difference"] < 1e-12 and not found["leaks"]
    assert found["moved_boundaries"] == 0 and found["hints"] is None
    assert found["windows"] == 2  # of 127 and 105 bytes
    assert found["positions"] == 2 * POSITIONS
    assert found["predictions"] > found["positions"] * 30


def test_a_peek_at_the_next_byte_is_caught(make_run):
    run = make_run(seq_len=128)
    found = audited(untouched(run), text_windows([TEXT], run, None))
    assert found["leaks"] and found["max_difference"] > 1e-3 and found["moved_boundaries"] > 0


@pytest.mark.parametrize("whole, leaks", [(before_space, True), (after_space, False)])
def test_hints_are_made_anew_for_the_changed_text(whole, leaks, make_run, network):
    bpe = {"max_vocabulary": 300, "train_bytes": 10, "sequence_bytes": 0}
    run = make_run("rltok_core.boundaries.bpe:Bpe", bpe, seq_len=128)
    reader = HintReader(whole, None)
    windows = text_windows([TEXT], run, reader)
    found = audited(network(run), windows, reader)
    assert found["leaks"] == leaks and found["hints"] == "recomputed"
    # held fixed they tell nothing of the change
    held = audited(network(run), windows)
    assert not held["leaks"] and held["hints"] == "held"


def test_the_model_is_left_as_it_was(make_run, network):
    run = make_run(seq_len=128)
    model = network(run)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    audited(model, text_windows([TEXT], run, None))
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert model.head.weight.dtype == torch.float32


def test_short_windows_and_one_symbol(make_run, network, tmp_path):
    run = make_run()
    store = ByteStore(tmp_path, np.frombuffer(b"\0aaaa", np.uint8), np.array([0, 1, 5]), None)
    found = audited(network(run), Windows(store, run.training.seq_len, "all"))
    assert (found["windows"], found["positions"]) == (2, 5)
    assert found["predictions"] == 1 + 1 + 2 + 3 + 4


def test_estimators_of_the_registry_build(make_run):
    """The parameters above are those of the real classes."""
    run = make_run(*POOLING)
    assert build_estimator(run.estimator, 8, 0.2, 32).causal
