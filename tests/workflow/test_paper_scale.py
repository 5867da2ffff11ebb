"""Every kind of run of the paper-scale experiments trains: the same options, a tiny network, our
own text. (That their plans list the right runs: test_plan.py and tests/config.)"""

import json
from pathlib import Path

import pytest

from rltok_core.boundaries.registry import estimator_class
from rltok_core.config.experiment import load_data, read_experiment
from rltok_core.config.schema import RunConfig, RuntimeConfig
from rltok_core.data.build import build
from rltok_core.training.loop import train

REPO = Path(__file__).resolve().parents[2]
STEPS = 2


def kinds() -> dict[str, RunConfig]:
    """The runs of paper.yaml that differ in more than seed and size, shrunk and on the CPU."""
    words = load_data(str(REPO / "tests/scenarios/data/words.yaml"))
    found = {}
    for run in read_experiment(REPO / "configs/experiments/paper.yaml")[1]:
        assert run.training.precision == "bf16" and run.runtime.micro_batch > 0
        model = {"d_model": 16, "n_heads": 2, "n_down": 1, "n_up": 1, "window": 4}
        training = {"seq_len": 32, "batch_size": 4, "steps": STEPS, "warmup_steps": 1}
        small = run.model_copy(
            update={
                "data": words,
                "model": run.model.model_copy(update=model),
                "training": run.training.model_copy(update=training),
                "runtime": RuntimeConfig(micro_batch=2, log_every=1),
                "seed": 0,
            }
        )
        found.setdefault(small.hash, small)
    return {f"{run.estimator.label}-mid{run.model.n_mid}": run for run in found.values()}


KINDS = kinds()


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "words"
    build(next(iter(KINDS.values())).data, folder)
    return folder


def test_the_kinds_are_all_there():
    labels = {run.estimator.label for run in KINDS.values()}
    methods = {"uniform", "pooling", "hnet", "bpe", "score_function", "score_function_w1"}
    ablations = {"no_discount", "no_batch_relative", "no_early_exit_reward", "no_target_loss"}
    assert labels >= methods | ablations | {f"r{r}" for r in range(1, 9)}


@pytest.mark.parametrize("name", KINDS)
def test_trains_for_a_few_steps(name, data, tmp_path):
    run, prepared = KINDS[name], None
    if run.estimator.rules:
        prepared = tmp_path / "prepared"
        prepared.mkdir()
        target = run.training.target_rate
        estimator_class(run.estimator).prepare(data, prepared, run.estimator.params, target)
    assert train(run, data, tmp_path / "run", prepared) == 0
    records = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").open()]
    assert [one["step"] for one in records if one["kind"] == "train"] == [1, STEPS]
    summary = json.loads((tmp_path / "run/training.json").read_text())
    assert summary["status"] == "complete" and summary["validation_bpb"] < 20
