"""What Snakemake plans, from the command line that a user types."""

from pathlib import Path

import pytest
import yaml

from rltok_core.config.experiment import read_experiment

REPO = Path(__file__).resolve().parents[2]


def trained(plan: dict) -> set[str]:
    return {name.removeprefix("run=") for name in plan["train"]}


def test_a_fresh_clone_plans_the_laptop_experiment_and_builds_nothing(workflow):
    plan = workflow.plan(configfile=False)
    runs = read_experiment(REPO / "configs/experiments/laptop.yaml")[1]
    assert trained(plan) == {run.id for run in runs}
    assert plan["evaluate"] == plan["train"]
    assert len(plan["build_data"]) == len({run.data.id for run in runs})
    prepared = {run.preparation_id for run in runs if run.estimator.rules}
    assert plan["prepare_bpe"] == {f"prepared={name}" for name in prepared}
    assert {"report", "all"} <= plan.keys()
    assert not (workflow.folder / "results").exists()


def test_another_experiment_takes_the_defaults_place_whole(workflow):
    path = REPO / "configs/experiments/paper.yaml"
    plan = workflow.plan("--configfile", str(path), configfile=False)
    assert trained(plan) == {run.id for run in read_experiment(path)[1]}


def test_K27_seeds_on_the_command_line_are_one_run(workflow):
    plans = [trained(workflow.plan("--config", f"seeds={text}")) for text in ("1", "[1]", '["1"]')]
    assert plans[0] == plans[1] == plans[2]
    assert len(plans[0]) == 2 and all("-s1-" in run for run in plans[0])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("tag=147_1", ["'tag'", "expected text", "1471", "'tag=!!str ...'"]),
        ("seedz=1", ["unknown key 'seedz'", "did you mean 'seeds'"]),
        ("seeds=yes", ["seeds"]),
        ("training={stepz: 5}", ["unknown key 'training.stepz'", "did you mean 'steps'"]),
    ],
)
def test_K27_a_wrong_value_is_a_clear_error(workflow, given, words):
    done = workflow("-n", "--config", given)
    message = done.stdout + done.stderr
    assert done.returncode != 0
    assert all(word in message for word in ["e.yaml", *words]), message
    assert "Traceback" not in message


def test_K27_the_way_out_that_the_message_names_works(workflow):
    assert workflow("-n", "--config", "tag=!!str 147_1").returncode == 0


def test_a_key_given_twice_in_the_experiments_file_is_an_error(workflow):
    text = (workflow.folder / "e.yaml").read_text()
    (workflow.folder / "e.yaml").write_text(text + "seeds: [3]\n")
    done = workflow("-n")
    assert done.returncode != 0
    assert "'seeds' is given twice" in done.stdout + done.stderr


def test_K31_an_unknown_profile_is_an_error_never_a_local_run(workflow):
    done = workflow("--profile", "slurn", "--cores", "1")
    assert done.returncode != 0
    assert "slurn" in done.stdout + done.stderr
    assert not (workflow.folder / "results").exists()


def test_the_default_profile_is_picked_up(workflow):
    """Snakemake looks in ./profiles and beside the Snakefile, never in workflow/profiles."""
    assert (REPO / "profiles").resolve() == REPO / "workflow/profiles"
    done = workflow("-n")
    assert "workflow specific profile" in done.stdout + done.stderr


def test_the_slurm_profile_is_found_from_the_root_and_names_the_whole_matrix():
    assert (REPO / "slurm").resolve() == REPO / "workflow/profiles/slurm"
    profile = yaml.safe_load((REPO / "slurm/config.yaml").read_text())
    assert profile["executor"] == "slurm" and profile["jobs"] > 0
    assert (REPO / profile["configfile"]).is_file()
