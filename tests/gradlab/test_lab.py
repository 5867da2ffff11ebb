"""The whole laboratory in miniature: table, figure, a plug-in's straight-through gradient."""

import csv
from pathlib import Path

import pytest
import torch
import yaml

from rltok_core.cli import main
from rltok_core.config.strict import read_yaml
from rltok_core.gradlab.moments import Separate, separate

CONFIGS = Path(__file__).parents[2] / "configs"
PLUGIN = """
import torch
from rltok_core.boundaries.score_function import ScoreFunction

class Ste(ScoreFunction):
    reward = None

    def to_bytes(self, y_BTD, tokens, proposal):
        p_BS = torch.where(proposal.boundary_BS, proposal.prob_BS, 1 - proposal.prob_BS)
        factor_BS = 1 + (p_BS - p_BS.detach()) * proposal.free_BS
        return super().to_bytes(y_BTD, tokens, proposal) * factor_BS[..., None]

    def losses(self, outcome):
        return {}
"""


@pytest.fixture(scope="module")
def edition(tmp_path_factory):
    """(folder, rows) of a run with a plug-in, and the csv of a second run."""
    folder = tmp_path_factory.mktemp("gradlab")
    (folder / "plugins").mkdir()
    (folder / "plugins" / "ste.py").write_text(PLUGIN)
    params = read_yaml(CONFIGS / "estimators/score_function_w1.yaml")["params"]
    (folder / "plugins" / "ste.yaml").write_text(
        yaml.safe_dump({"class": "ste.py:Ste", "params": params})
    )
    small = read_yaml(CONFIGS / "gradlab.yaml") | {
        "estimators": [
            *("disarm", "hnet", "off_policy", "pooling", "rloo", "rloo4", "score_function_w1"),
            *("ste", "uniform"),
        ],
        "beside": [],
        "plugins": [str(folder / "plugins")],
        "positions": 4,
        "batches": [1, 2],
        "gammas": [1],
        "noise_samples": 2,
        "training": {"steps": 2, "batch_size": 2, "lr": 0.01, "lr_policy": 0.1},
    }
    (folder / "small.yaml").write_text(yaml.safe_dump(small))
    for out in ("one", "two"):
        command = ["gradlab", "--config", str(folder / "small.yaml"), "--out", str(folder / out)]
        assert main(command) == 0
    with open(folder / "one" / "table.csv", encoding="utf-8") as file:
        return folder, list(csv.DictReader(file))


def test_the_same_command_gives_the_same_table(edition):
    folder, _ = edition
    for name in ("table.csv", "table.md", "caption.md"):
        assert (folder / "one" / name).read_bytes() == (folder / "two" / name).read_bytes()
    assert {"figure.png", "figure.pdf"} < {path.name for path in (folder / "one").iterdir()}


def test_every_measure_of_every_estimator_is_there(edition):
    folder, rows = edition
    known = {"disarm", "hnet", "off_policy", "pooling", "rloo", "score_function_w1", "ste"}
    assert {row["estimator"] for row in rows} == known
    assert {row["params"] for row in rows} == {"init", "trained"}
    needed = "estimator gamma batch samples params bias cosine rel_variance forward_passes exact"
    assert set(needed.split()) <= set(rows[0])
    # switches 4 x batches 2 x scopes 2 x parameters 2
    assert sum(row["estimator"] == "score_function_w1" for row in rows) == 32
    text = (folder / "one" / "table.md").read_text()
    assert "uniform: a rule without parameters" in text
    assert "rloo4: rloo at another setting of what is swept" in text
    for row in rows:
        draws = {"rloo": ("2", "4"), "disarm": ("2",)}.get(row["estimator"], ("1",))
        assert row["samples"] in draws and row["forward_passes"] == row["samples"]
        assert ("drawn at the target rate" in row["exact"]) == (row["estimator"] == "off_policy")


def test_measures_say_what_is_known(edition):
    _, rows = edition
    for row in rows:
        bias, variance = float(row["bias"]), float(row["rel_variance"])
        if row["estimator"] == "score_function_w1" and row["gamma"] == "1":
            centred = "batch_relative" in row["settings"]
            if row["scope"] == "policy":
                expected = 1 / int(row["batch"]) if centred else 0
                assert bias == pytest.approx(expected, abs=1e-9)
            elif not centred:
                assert bias < 1e-9
        if row["estimator"] in ("rloo", "disarm"):
            assert bias < 1e-9 and variance > 0
        if row["estimator"] in ("ste", "pooling") and row["scope"] == "policy":
            assert bias > 0.01 and variance > 0
        if row["estimator"] == "hnet":
            assert variance == 0 and bias > 0.01
        assert (float(row["standard_error"]) > 0) == (row["estimator"] == "pooling")


def test_sampled_noise_gives_an_unbiased_variance():
    """Rows whose mean has an error: the variance estimate allows for it."""
    row = Separate(torch.tensor([3.0, 4.0]).double(), torch.tensor(30.0).double(), 1.0)
    found = separate([row, row])
    assert found.variance == pytest.approx(2 * (30 - 25 + 1) / 4)
    assert found.error == pytest.approx(2**0.5 / 2)
