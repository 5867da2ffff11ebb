"""What a run reads: hints for those that need them, validation as the evaluation scores."""

import numpy as np
import pytest
import torch

from rltok_core.boundaries.contract import Estimator
from rltok_core.data.store import ByteStore
from rltok_core.errors import UserError
from rltok_core.training.inputs import open_windows, read_hints
from rltok_core.training.trainer import Trainer
from rltok_core.training.validation import validate


class Prepared(Estimator):
    hint = "prepared"


class Truth(Estimator):
    hint = "truth"


UNIFORM = {"label": "uniform", "class": "rltok_core.boundaries.uniform:Uniform"}


def test_prepared_hints_reach_the_batch_one_position_on(bench, tmp_path):
    store = ByteStore.open(bench.data / "train")
    hints = (np.arange(len(store.bytes)) % 3 == 0).astype(np.uint8)
    np.save(tmp_path / "train.hints.npy", hints)
    windows = open_windows(bench.run(), Prepared, "train", bench.data, tmp_path)
    batch = windows.batch([1], [0])
    size = int(batch.length_B[0]) - 1
    expected = hints[store.offsets[1] : store.offsets[1] + size].astype(bool)
    assert batch.hint_BS[0, 1 : size + 1].tolist() == expected.tolist()
    assert not batch.hint_BS[0, 0]


def test_hints_that_are_missing_or_of_other_data_are_named(bench, tmp_path):
    run, store = bench.run(), ByteStore.open(bench.data / "train")
    with pytest.raises(UserError, match="needs --prepared"):
        open_windows(run, Prepared, "train", bench.data, None)
    with pytest.raises(UserError, match=r"train.hints.npy: missing"):
        open_windows(run, Prepared, "train", bench.data, tmp_path)
    np.save(tmp_path / "train.hints.npy", np.zeros(5, np.uint8))
    with pytest.raises(UserError, match=r"train.hints.npy: 5 hints for the \d+ bytes"):
        open_windows(run, Prepared, "train", bench.data, tmp_path)
    with pytest.raises(UserError, match=r"truth.npy: missing"):
        open_windows(run, Truth, "train", bench.data, None)
    assert read_hints(Estimator, store, "train", bench.data, None) is None
    np.save(bench.data / "train" / "truth.npy", np.ones(len(store.bytes), np.uint8))
    windows = open_windows(run, Truth, "train", bench.data, None)
    assert windows.batch([0], [0]).hint_BS[0, 1]


@pytest.mark.parametrize("kept", [0, 20, -5])
def test_damaged_hints_are_named(kept, bench, tmp_path):
    store, path = ByteStore.open(bench.data / "train"), tmp_path / "train.hints.npy"
    np.save(path, np.zeros(len(store.bytes), np.uint8))
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(UserError, match=r"train.hints.npy: missing or damaged"):
        open_windows(bench.run(), Prepared, "train", bench.data, tmp_path)


def test_promise_2_rows_and_streams_do_not_depend_on_the_micro_batch(bench):
    """Nor on what came before: a step's batch is asked for out of order."""

    def rows(micro_batch: int, order: list[int]) -> list:
        run = bench.run(estimator=UNIFORM, batch_size=5, runtime={"micro_batch": micro_batch})
        trainer = Trainer(run, open_windows(run, Estimator, "train", bench.data, None))
        found = {}
        for step in order:
            data = trainer.batches(step)
            texts = [
                (key, ids[:length].tolist())
                for batch in data.batches
                for key, ids, length in zip(
                    batch.stream.keys_B, batch.ids_BS, batch.length_B, strict=True
                )
            ]
            found[step] = (data.samples, texts)
        return [found[step] for step in range(4)]

    assert rows(0, [0, 1, 2, 3]) == rows(2, [3, 1, 0, 2]) == rows(1, [2, 3, 0, 1])


def test_validation_does_not_depend_on_batches_and_leaves_the_model_as_it_was(bench):
    found = []
    for micro_batch in (0, 1, 2):
        run = bench.run(runtime={"micro_batch": micro_batch}, validation_sequences=64)
        torch.manual_seed(0)
        trainer = Trainer(run, open_windows(run, Estimator, "train", bench.data, None))
        windows = open_windows(run, Estimator, "validation", bench.data, None)
        before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
        found.append(validate(trainer, windows, 0.2))
        assert trainer.model.training
        after = trainer.model.state_dict()
        assert all(torch.equal(value, after[name]) for name, value in before.items())
        trainer.step()  # what validation cached must be usable with gradients
    assert found[1] == pytest.approx(found[0], rel=1e-6)
    assert found[2] == pytest.approx(found[0], rel=1e-6)
    # an untrained network says more than 8 bits; three documents, hundreds of bytes
    assert found[0]["bpb"] > 8
