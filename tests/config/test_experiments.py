"""The experiments that ship: each resolves, and holds the runs that it says it does."""

import csv
from pathlib import Path

import pytest

from rltok_core.config.cli import main as resolve
from rltok_core.config.experiment import load_data, read_experiment
from rltok_core.config.strict import read_yaml

EXPERIMENTS = sorted(Path("configs/experiments").glob("*.yaml"))
PARTS = ("paper_fineweb", "paper_code", "ablations", "sweep_lambda", "sweep_aspect")
METHODS = {
    "uniform", "stride", "whitespace", "bpe", "bpe_causal", "score_function", "score_function_w1",
    "hnet", "pooling",
}  # fmt: skip
BEYOND_THE_PAPER = {"bernoulli_ste", "critic", "entropy"}


def runs(name: str) -> list:
    return read_experiment(Path(f"configs/experiments/{name}.yaml"))[1]


def labels(name: str, data: str) -> set[str]:
    return {run.estimator.label for run in runs(name) if run.data.name == data}


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_every_experiment_resolves_under_its_own_name(path):
    experiment, found = read_experiment(path)
    assert experiment.name == path.stem
    assert experiment.figures == f"paper_figures/{path.stem}"
    assert len({run.id for run in found}) == len(found) > 0


@pytest.mark.parametrize("path", sorted(Path("configs/data").glob("*.yaml")), ids=lambda p: p.stem)
def test_every_corpus_parses(path):
    assert load_data(path.stem).name


@pytest.mark.parametrize("name", ["laptop", "estimators"])
def test_the_committed_editions_runs_keep_their_names(name):
    """A new key with a default must not move what has been trained already."""
    with Path(f"paper_figures/{name}/provenance.csv").open(encoding="utf-8") as file:
        made = {line["run"] for line in csv.DictReader(file)}
    assert made and made <= {run.id for run in runs(name)}


def test_the_ledger_shares_the_laptops_runs():
    shared = {run.id for run in runs("laptop")} & {run.id for run in runs("ledger")}
    assert len(shared) == 12  # score_function_w1, bpe, bpe_causal; two corpora, two seeds


def test_laptop_has_every_method_and_two_seeds_a_row():
    assert labels("laptop", "planted") >= METHODS | {"oracle", "no_mid"}
    assert labels("laptop", "prose") >= METHODS | {"no_mid"}
    assert labels("laptop", "code") >= {"uniform", "bpe", "hnet", "score_function", "no_mid"}
    rows: dict[tuple, set] = {}
    for run in runs("laptop"):
        rows.setdefault((run.data.name, run.estimator.label), set()).add(run.seed)
    assert all(len(seeds) >= 2 for seeds in rows.values())


def test_smoke_has_every_method_and_is_kept_apart():
    experiment, found = read_experiment(Path("configs/experiments/smoke.yaml"))
    every = METHODS | BEYOND_THE_PAPER | {"oracle", "no_mid"}
    assert {run.estimator.label for run in found} >= every
    assert experiment.results == "results/smoke"
    assert {run.model.size for run in found} == {"tiny"}


def test_evening_has_three_seeds_and_a_larger_network_on_text():
    found = runs("evening")
    assert {run.seed for run in found} >= {0, 1, 2}
    laptop = {run.data.name: run for run in runs("laptop")}
    for run in found:
        assert run.training.steps > laptop[run.data.name].training.steps
        if run.data.name in ("prose", "code"):
            assert run.model.d_model > laptop[run.data.name].model.d_model


@pytest.mark.parametrize("name", PARTS)
def test_paper_scale_is_the_papers(name):
    """paper.md 2 and 5: sequences of 4096, bf16 on a GPU, no curriculum and no controller."""
    for run in runs(name):
        training = run.training
        assert training.curriculum is None and training.controller is None
        assert (training.seq_len, training.precision) == (4096, "bf16")
        assert run.runtime.device == "cuda" and run.model.window == 64
        assert training.schedule == "cosine" and training.warmup_from == 0.1
        assert run.model.d_model // run.model.n_heads == 64


@pytest.mark.parametrize(
    ("size", "lr", "batch", "warmup_bytes", "training_bytes"),
    [
        ("20M", 3.0e-3, 32, 6.2e7, 8.3e8),
        ("40M", 2.4e-3, 64, 1.1e8, 1.5e9),
        ("90M", 2.0e-3, 128, 2.5e8, 3.4e9),
        ("147M", 1.5e-3, 128, 4.5e8, 6.0e9),
        ("346M", 1.5e-3, 256, 1.2e9, 1.6e10),
    ],
)
def test_sizes_train_as_the_papers_table_says(size, lr, batch, warmup_bytes, training_bytes):
    training = read_yaml(Path("configs/sizes.yaml"))[size]["training"]
    assert (training["lr"], training["batch_size"]) == (lr, batch)
    step = batch * 4096
    assert training["steps"] * step == pytest.approx(training_bytes, abs=step)
    assert training["warmup_steps"] * step == pytest.approx(warmup_bytes, abs=step)


def test_fineweb_and_code_are_the_published_rows():
    fineweb, code = runs("paper_fineweb"), runs("paper_code")
    assert {run.model.size for run in fineweb} == {"147M"} and {r.model.size for r in code} == {
        "90M"
    }
    wanted = {"uniform", "pooling", "hnet", "bpe", "score_function", "score_function_w1"}
    assert labels("paper_fineweb", "fineweb") == wanted
    assert labels("paper_code", "codeparrot") >= {"score_function", "hnet"}
    assert {
        run.estimator.params["gamma"] for run in fineweb if "gamma" in run.estimator.params
    } == {0.99}


def test_ablations_each_change_one_thing():
    found = {run.estimator.label: run.estimator.params for run in runs("ablations")}
    base = found.pop("score_function")
    changed = {
        label: {key: value for key, value in params.items() if value != base[key]}
        for label, params in found.items()
    }
    assert changed == {
        "no_discount": {"gamma": 1},
        "no_batch_relative": {"batch_relative": False},
        "no_early_exit_reward": {"early_exit_reward": False},
        "no_window": {"window": 1},
        "no_target_loss": {"lam_target": 0},
        "discount_0.9": {"gamma": 0.9},
    }


def test_aspect_sweep_has_r_mid_layers_at_rate_one_over_r():
    found = runs("sweep_aspect")
    assert {run.model.size for run in found} == {"20M", "40M"}
    for run in found:
        r = int(run.estimator.label.removeprefix("r"))
        assert run.model.n_mid == r and run.model.n_down == run.model.n_up == 4
        assert run.training.target_rate == pytest.approx(1 / r, abs=1e-6)
        step = run.training.batch_size * run.training.seq_len
        assert run.training.steps * step == pytest.approx(3e9, abs=step)
    assert len(found) == 16


def test_lambda_sweep_moves_one_weight_at_a_time():
    for run in runs("sweep_lambda"):
        weights = {
            "lam_target": (run.estimator.params["lam_target"], 0.01),
            "lam_pi": (run.estimator.params["lam_pi"], 0.01),
            "lam_early": (run.training.lam_early, 0.1),
        }
        moved = [name for name, (value, default) in weights.items() if value != default]
        if run.estimator.label == "score_function":
            assert moved == []
        else:
            name, _, value = run.estimator.label.rpartition("_")
            assert moved == [name] and weights[name][0] == float(value)


def test_the_whole_matrix_is_its_parts():
    whole = {run.id for run in runs("paper")}
    assert whole == {run.id for part in PARTS for run in runs(part)}


def test_resolve_writes_each_run_once_and_leaves_unchanged_files_alone(tmp_path, capsys):
    arguments = ["--experiment", "configs/experiments/smoke.yaml", "--out", str(tmp_path)]
    assert resolve(arguments) == 0
    found = runs("smoke")
    assert {path.stem for path in tmp_path.glob("*.yaml")} == {run.id for run in found}
    assert {p.stem for p in (tmp_path / "data").glob("*.yaml")} == {run.data.id for run in found}
    experiment, again = read_experiment(tmp_path / "experiments" / "smoke.yaml")
    assert experiment.name == "smoke" and [run.id for run in again] == [run.id for run in found]
    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.yaml")}
    assert resolve(arguments) == 0
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.yaml")} == times
    capsys.readouterr()
    assert resolve([*arguments[:2], "--list"]) == 0
    assert capsys.readouterr().out.split() == [run.id for run in found]
