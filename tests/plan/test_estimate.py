"""Planned costs against the classes, the network as built, step_flops, and checkpoints on disk."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from rltok_core.boundaries.registry import build_estimator
from rltok_core.boundaries.sizes import FACTS, PACKAGE, estimator_size
from rltok_core.cli import main
from rltok_core.config.experiment import load_data, load_estimator, read_experiment
from rltok_core.config.schema import EstimatorEntry
from rltok_core.data.batch import Batch
from rltok_core.data.stream import RandomStream
from rltok_core.model.flops import row_tokens, step_flops
from rltok_core.model.unet import UNet
from rltok_core.plan.devices import DEVICES
from rltok_core.plan.estimate import Cost, store_bytes

SHIPPED = sorted(path.stem for path in Path("configs/estimators").glob("*.yaml"))
PAPER = "configs/experiments/paper.yaml"


def run_of(experiment, data, label):
    runs = read_experiment(Path(f"configs/experiments/{experiment}.yaml"))[1]
    return next(r for r in runs if (r.data.name, r.estimator.label) == (data, label))


@pytest.mark.parametrize("name", SHIPPED)
def test_what_is_known_of_an_estimator_is_what_its_class_says(name):
    config = load_estimator(EstimatorEntry(name=name))
    with torch.device("meta"):
        built = build_estimator(config, 24, 0.2, 128)
    found = estimator_size(config, 24, 0.2, 128)
    assert found.weights == sum(p.numel() for p in built.parameters())
    assert (found.learned, found.samples) == (built.learned, built.samples)


def test_a_plug_in_is_built_to_be_counted():
    config = load_estimator(EstimatorEntry(name="hnet"))
    assert config.cls.removeprefix(PACKAGE) in FACTS
    path = Path("rltok_core/boundaries/hnet.py").resolve()
    other = config.model_copy(update={"cls": f"{path}:HNet"})
    assert estimator_size(other, 24, 0.2, 128)[:2] == estimator_size(config, 24, 0.2, 128)[:2]


@pytest.mark.parametrize("label", ["no_mid", "stride"])
def test_planned_flops_are_those_of_the_steps(label):
    run = run_of("smoke", "planted_tiny", label)
    training = run.training.model_copy(update={"target_rate": 0.25})
    run = run.model_copy(update={"training": training})
    given = (run.model.d_model, training.target_rate, training.seq_len)
    model = UNet(run.model, build_estimator(run.estimator, *given), 0)
    rows, length = training.batch_size, training.seq_len
    batch = Batch(
        torch.full((rows, length), 70),
        torch.full((rows,), length),
        RandomStream(list(range(rows))),
    )
    prediction = model(batch, training.target_rate)
    found, cost = step_flops(model, batch, row_tokens(prediction)), Cost(run)
    # the forced end is one token more than a quarter
    rel = 0 if label == "no_mid" else 0.05
    assert cost.weights.total == model.parameter_counts()["total"]
    assert cost.flops_paper.total == pytest.approx(training.steps * found.paper, rel=rel)
    assert cost.flops_counted.total == pytest.approx(training.steps * found.counted, rel=rel)
    assert (cost.flops_paper.mid == 0) == (label == "no_mid")


def test_the_papers_figures():
    """paper.md 2: 147M at rate 0.2 is about 0.34 GFLOP a byte, 2.0e18 in all."""
    cost = Cost(run_of("paper", "fineweb", "score_function"))
    assert cost.flops_paper.total == pytest.approx(2.0e18, rel=0.02)
    assert cost.flops_paper.total / cost.bytes == pytest.approx(0.34e9, rel=0.01)
    hours = cost.flops_counted.total / (0.4 * 989.4e12) / 3600
    assert cost.gpu_hours(DEVICES["h100"], 0.4) == pytest.approx(hours)


def test_a_curriculum_costs_what_its_rates_ask_for():
    cost = Cost(run_of("laptop", "prose", "score_function_w1"))
    plain = Cost(
        cost.run.model_copy(
            update={"training": cost.run.training.model_copy(update={"curriculum": None})}
        )
    )
    # a tenth of the steps at rate 1, then from 0.9 to 0.2 until half way
    mean = 0.1 * 1 + 0.4 * (0.9 + 0.2) / 2 + 0.5 * 0.2
    assert cost.flops_paper.mid / plain.flops_paper.mid == pytest.approx(mean / 0.2, rel=0.01)
    assert cost.flops_paper.byte == plain.flops_paper.byte
    assert cost.memory > plain.memory  # of the open phase


def test_a_checkpoint_on_disk_is_as_large_as_planned(tmp_path):
    run = run_of("laptop", "prose", "score_function_w1")
    given = (run.model.d_model, run.training.target_rate, run.training.seq_len)
    model = UNet(run.model, build_estimator(run.estimator, *given), 0)
    optimizer = torch.optim.AdamW(model.parameters())
    sum(p.sum() for p in model.parameters()).backward()
    optimizer.step()
    torch.save({"m": model.state_dict(), "o": optimizer.state_dict()}, tmp_path / "step.pt")
    torch.save({"m": model.state_dict()}, tmp_path / "final.pt")
    sizes = {path.stem: path.stat().st_size for path in tmp_path.iterdir()}
    kept = run.runtime.keep_checkpoints
    assert Cost(run).disk == pytest.approx(kept * sizes["step"] + sizes["final"], rel=0.05)


def test_stores():
    assert store_bytes(load_data("planted")) == (2 * 40000 * 255, "about")
    assert store_bytes(load_data("codeparrot")) == (20 * 10**9, "about")
    assert store_bytes(load_data("fineweb")) == (1_600_000 * 4097, "at least")
    assert store_bytes(load_data("prose")) is None


def test_json_totals_are_the_sums_and_the_table_says_them(capsys):
    assert main(["plan", "--experiment", PAPER, "--json", "--micro-batch", "4"]) == 0
    planned = json.loads(capsys.readouterr().out)
    rows, total = planned["rows"], planned["total"]
    assert sum(len(row["seeds"]) for row in rows) == total["runs"] == 60
    assert {row["micro_batch"] for row in rows} == {4}
    for key in ("flops_paper", "gpu_hours", "disk_bytes"):
        assert total[key] == pytest.approx(sum(len(r["seeds"]) * r[key] for r in rows))
    for row in rows:
        assert row["flops_paper"] == row["flops_paper_byte"] + row["flops_paper_mid"]
    assert main(["plan", "--experiment", PAPER, "--device", "rtx4090"]) == 0
    text = capsys.readouterr().out
    assert f"{total['flops_paper']:.2e} FLOPs" in text and "RTX 4090" in text
    assert " GB ! " in text and "smaller --micro-batch" in text  # 32 rows of 147M


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--device", "h1000"], "did you mean 'h100'"),
        (["--utilisation", "40"], "share of the peak"),
        (["--micro-batch", "0"], "at least 1"),
    ],
)
def test_a_wrong_wish_is_one_clear_message(given, words, capsys):
    assert main(["plan", "--experiment", PAPER, *given]) != 0
    assert words in capsys.readouterr().err


def test_planning_imports_no_torch():
    """The workflow asks at every start, for every job."""
    text = f"""
import sys
from pathlib import Path
from rltok_core.config.experiment import read_experiment
from rltok_core.plan.summary import plan, headline
from rltok_core.plan.devices import DEVICES
print(headline(plan(*read_experiment(Path({PAPER!r})), DEVICES["h200"])))
assert "torch" not in sys.modules and "numpy" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("60 runs") and "H200" in done.stdout
