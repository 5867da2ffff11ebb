"""What is made again after a change, on a finished workflow; and what outlives a kill (K29).

One real run of the pipeline, shared by the tests of this file (`make test` keeps a file's tests on
one worker).
"""

import contextlib
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from rltok_core.config.experiment import read_experiment

REPO = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def finished(tmp_path_factory, in_folder, base):
    """A copy of the checkout, whose files a test may change, on which `make reproduce` was killed
    at its first training and run again."""
    home = tmp_path_factory.mktemp("checkout")
    for name in ("workflow", "configs", "rltok_core"):
        shutil.copytree(REPO / name, home / name)  # with what numba has compiled
    for name in ("Snakefile", "profiles"):
        shutil.copy(REPO / name, home / name, follow_symlinks=False)
    workflow = in_folder(home, base, home)
    shutil.copy(home / "e.yaml", home / "configs/experiments/two_methods.yaml")
    command = [sys.executable, "workflow/reproduce.py", "two_methods", "--cores", "2"]

    first = subprocess.Popen(command, cwd=home, stdout=subprocess.DEVNULL)
    children = wait_for(lambda: (home / "results/runs").is_dir() and living(first.pid), 120)
    first.kill()
    for process in children:
        if "snakemake" in process.cmdline():
            process.kill()
    first.wait()
    assert any((home / ".snakemake/locks").iterdir())

    second = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)
    assert second.returncode == 0, second.stdout + second.stderr
    workflow.words = second.stdout
    return workflow


def living(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def wait_for(condition, seconds: float):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


@pytest.fixture
def workflow(finished, base):
    finished.write(base)
    return finished


def test_a_killed_make_reproduce_goes_on_and_names_what_it_made(workflow):
    for file in ("main_table.csv", "flops_bpb.png", "report.html"):
        assert f"paper_figures/two_methods/{file}" in workflow.words
    assert "trained 2/2" in workflow.words  # what `rltok progress` says on the way
    table = workflow.folder / "paper_figures/two_methods/main_table.csv"
    assert [line.split(",")[2] for line in table.read_text().splitlines()[1:]] == [
        "uniform",
        "score_function",
    ]
    assert (workflow.folder / "results/snakemake_report_two_methods.html").is_file()


def test_again_at_once_there_is_nothing_to_do(workflow):
    assert workflow.plan() == {}


def edited(path: Path, old: str, new: str):
    """The file with `old` replaced, for the length of a block."""
    text = path.read_text(encoding="utf-8")
    assert old in text
    with contextlib.ExitStack() as stack:
        stack.callback(path.write_text, text, encoding="utf-8")
        path.write_text(text.replace(old, new), encoding="utf-8")
        return stack.pop_all()


def test_a_changed_estimator_yaml_replans_its_own_runs_alone(workflow):
    with edited(workflow.home / "configs/estimators/score_function.yaml", "0.99", "0.98"):
        plan = workflow.plan()
    assert len(plan["train"]) == len(plan["evaluate"]) == 1
    assert "score_function" in plan["train"].pop()
    assert "build_data" not in plan


def test_another_seed_adds_its_own_runs_alone(workflow, base):
    workflow.write({**base, "seeds": [0, 1]})
    plan = workflow.plan()
    assert len(plan["train"]) == 2 and all("-s1-" in name for name in plan["train"])
    assert plan["evaluate"] == plan["train"] and "build_data" not in plan


def test_changed_evaluation_settings_evaluate_again_and_train_nothing(workflow, base):
    workflow.write({**base, "evaluation": {**base["evaluation"], "sequences": 3}})
    plan = workflow.plan()
    assert len(plan["evaluate"]) == 2
    assert "train" not in plan and "build_data" not in plan


@pytest.mark.parametrize("change", [{"title": "Another"}, {"runtime": {"threads": 1}}])
def test_a_new_title_or_runtime_makes_the_report_again_and_nothing_else(workflow, base, change):
    workflow.write({**base, **change})
    assert workflow.plan().keys() == {"report", "all"}


def test_changed_report_code_draws_again_and_trains_nothing(workflow):
    with edited(workflow.home / "rltok_core/report/charts.py", '"""', '"""Restyled. '):
        assert workflow.plan().keys() == {"report", "all"}


def test_reworded_commands_and_changed_training_code_train_nothing_again(workflow):
    """Not a trigger, on purpose: hours of training are not thrown away for a comment."""
    rules = workflow.home / "workflow/rules/train.smk"
    with (
        edited(workflow.home / "rltok_core/training/loop.py", '"""', '"""Reworded. '),
        edited(rules, "> {log:q}", ">  {log:q}"),
    ):
        assert workflow.plan() == {}


def test_a_run_whose_folder_is_removed_is_trained_again(workflow, tmp_path):
    (run,) = (workflow.folder / "results/runs").glob("*uniform*")
    run.rename(tmp_path / run.name)
    try:
        plan = workflow.plan()
    finally:
        (tmp_path / run.name).rename(run)
    assert plan["train"] == plan["evaluate"] == {f"run={run.name}"} and "report" in plan


def test_committed_figures_do_not_stand_for_runs_that_are_not_there(
    workflow, tmp_path, in_folder, base
):
    """A fresh clone holds the committed edition of paper_figures and no results."""
    clone = in_folder(tmp_path, base, workflow.home)
    edition = workflow.folder / "paper_figures"
    edition.rename(tmp_path / "paper_figures")
    try:
        plan = clone.plan()
    finally:
        (tmp_path / "paper_figures").rename(edition)
    assert len(plan["train"]) == 2 and "report" in plan


def test_K29_a_killed_training_goes_on_from_its_checkpoint(workflow, base):
    """Killed at step 55 of 100, started again; killed at 75, tried again by Snakemake itself."""
    marks = workflow.folder / "marks"
    marks.mkdir()
    entry = {"name": "kill_twice", "params": {"folder": str(marks)}}
    workflow.write(
        {
            **base,
            "plugins": [str(REPO / "tests/workflow/plugins")],
            "training": {"steps": 100},
            "runtime": {"checkpoint_every": 10, "log_every": 1},
            "matrix": [{"data": base["matrix"][0]["data"], "size": "tiny", "estimators": [entry]}],
        }
    )
    (run,) = read_experiment(workflow.folder / "e.yaml", REPO / "configs")[1]
    folder = workflow.folder / "results/runs" / run.id
    goal = str((folder / "final.pt").relative_to(workflow.folder))

    first = workflow("--cores", "1", goal)
    assert first.returncode != 0
    assert [path.name for path in marks.iterdir()] == ["killed_at_55"]
    assert not (folder / "final.pt").exists() and not (folder / "training.json").exists()

    second = workflow("--cores", "1", "--rerun-incomplete", "--retries", "1", goal)
    assert second.returncode == 0, second.stdout + second.stderr
    assert (marks / "killed_at_75").exists()
    summary = json.loads((folder / "training.json").read_text())
    assert summary["status"] == "complete" and summary["resumed_from"] == [50, 70]
    lines = Path(folder / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    steps = [record["step"] for record in records if record["kind"] == "train"]
    assert steps == list(range(1, 101))
