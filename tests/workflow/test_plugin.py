"""A user's own estimator, in a folder of theirs, goes through pipeline and laboratory unaided."""

import csv
import json
from pathlib import Path

import pytest
import yaml

from rltok_core.boundaries.new_estimator import write
from rltok_core.cli import main

REPO = Path(__file__).resolve().parents[2]


@pytest.mark.xdist_group("pipeline")  # beside test_reruns.py's, not at the same time
def test_a_plugin_is_in_the_table_and_the_figures(tmp_path, in_folder):
    write("my_own", tmp_path / "mine")
    smoke = yaml.safe_load((REPO / "configs/experiments/smoke.yaml").read_text("utf-8"))
    plan = {"data": "planted_tiny", "size": "tiny", "estimators": ["uniform", "my_own"]}
    workflow = in_folder(tmp_path, {**smoke, "plugins": ["mine"], "matrix": [plan]})
    done = workflow("--cores", "1")
    assert done.returncode == 0, done.stdout + done.stderr

    figures = tmp_path / smoke["figures"]
    with open(figures / "main_table.csv", encoding="utf-8") as file:
        rows = {row["estimator"]: row for row in csv.DictReader(file)}
    assert rows.keys() == {"uniform", "my_own"}
    assert 0 < float(rows["my_own"]["bpb"]) < 20
    for name in (
        "main_table.md",
        "provenance.csv",
        "bpb_by_method.svg",
        "flops_bpb.svg",
    ):
        assert "my_own" in (figures / name).read_text("utf-8"), name
    (run,) = (tmp_path / smoke["results"] / "runs").glob("*my_own*")
    summary = json.loads((run / "training.json").read_text("utf-8"))
    assert summary["status"] == "complete" and summary["parameters"]["policy"] == 16 + 1
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").open(encoding="utf-8")]
    assert any("policy" in one["terms"] for one in metrics if one["kind"] == "train")


def test_a_plugin_is_in_the_laboratorys_table(tmp_path):
    write("my_own", tmp_path / "mine")
    lab = yaml.safe_load((REPO / "configs/gradlab.yaml").read_text("utf-8"))
    lab |= {"plugins": [str(tmp_path / "mine")], "estimators": ["rloo", "my_own"], "beside": []}
    lab |= {"positions": 4, "joint_positions": 4, "batches": [1, 2], "gammas": [1]}
    lab["training"] |= {"steps": 2, "batch_size": 2}
    (tmp_path / "lab.yaml").write_text(yaml.safe_dump(lab), encoding="utf-8")
    out = tmp_path / "gradlab"
    assert main(["gradlab", "--config", str(tmp_path / "lab.yaml"), "--out", str(out)]) == 0
    with open(out / "table.csv", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["estimator"] == "my_own"]
    assert {row["params"] for row in rows} == {"init", "trained"}
    # it looks one step ahead and centres over the batch: not unbiased, and said so
    assert all(float(row["bias"]) > 1e-3 and float(row["rel_variance"]) > 0 for row in rows)
    assert "my_own" in (out / "table.md").read_text("utf-8")
