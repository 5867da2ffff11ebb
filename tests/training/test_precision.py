"""The switch `precision: bf16_pure` (ledger 12): what is kept in bf16, and that it still trains."""

import pytest
import torch

from rltok_core.boundaries.registry import estimator_class
from rltok_core.evaluation.subject import load_trained
from rltok_core.training import checkpoint
from rltok_core.training.inputs import open_windows
from rltok_core.training.loop import train
from rltok_core.training.trainer import Trainer

ESTIMATORS = {
    "hnet": {"ratio_weight": 0.03},
    "pooling": {"temperature": 1.0, "prior_weight": 1.0},
}


def estimator(name):
    if name == "spy":
        return None
    cls = {"hnet": "HNet", "pooling": "Pooling"}[name]
    where = f"rltok_core.boundaries.{name}:{cls}"
    return {"label": name, "class": where, "params": ESTIMATORS[name]}


def test_weights_gradients_and_states_are_bf16_and_resume_is_exact(bench, tmp_path):
    run = bench.run(steps=4, precision="bf16_pure")
    assert train(run, bench.data, tmp_path / "whole") == 0
    state = torch.load(
        checkpoint.checkpoint_path(tmp_path / "whole/checkpoints", 4), weights_only=True
    )
    weights = {k: v.dtype for k, v in state["model"].items() if k != "estimator.rate_bias"}
    assert set(weights.values()) == {torch.bfloat16}
    assert state["model"]["estimator.rate_bias"].dtype == torch.float32
    moments = [
        s[m] for s in state["optimizer"]["state"].values() for m in ("exp_avg", "exp_avg_sq")
    ]
    assert moments and {m.dtype for m in moments} == {torch.bfloat16}
    # on from step 2
    windows = open_windows(run, estimator_class(run.estimator), "train", bench.data, None)
    trainer = Trainer(run, windows)
    saved = torch.load(
        checkpoint.checkpoint_path(tmp_path / "whole/checkpoints", 2), weights_only=True
    )
    trainer.restore(saved)
    trainer.step()
    assert {p.grad.dtype for p in trainer.model.parameters()} == {torch.bfloat16}
    trainer.step()
    for name, value in trainer.model.state_dict().items():
        assert torch.equal(value, state["model"][name]), name


@pytest.mark.parametrize("name", ["spy", "hnet", "pooling"])
def test_pure_bf16_starts_near_float32_and_is_evaluated_in_float32(bench, tmp_path, name):
    losses = {}
    for precision in ("float32", "bf16_pure"):
        run = bench.run(steps=3, precision=precision, estimator=estimator(name))
        windows = open_windows(run, estimator_class(run.estimator), "train", bench.data, None)
        torch.manual_seed(0)  # of the estimator's own weights
        trainer = Trainer(run, windows)
        losses[precision] = float(trainer.gradient(trainer.batches(0), 0.2)[0]["nats"])
    assert losses["bf16_pure"] != losses["float32"]
    assert losses["bf16_pure"] == pytest.approx(losses["float32"], rel=0.01)
    assert train(run, bench.data, tmp_path) == 0
    model = load_trained(tmp_path).model
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    weight = model.head.weight
    assert torch.equal(weight, weight.bfloat16().float())
