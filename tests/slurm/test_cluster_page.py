"""docs/on-your-cluster.md, followed literally: the edit, the plan, the two runs."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from slurm_folder import REPO, submitted

from rltok_core.config.experiment import load_experiment, read_experiment

pytestmark = pytest.mark.slurm

PAGE = (REPO / "docs/on-your-cluster.md").read_text("utf-8")
CLOCKS = {"train_seconds", "bytes_per_second", "peak_memory_bytes", "manifest"}
INSTALL, RUN = re.findall(r"^```bash\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)


def checkout(folder: Path) -> Path:
    """A clone's files, as they are now."""
    for name in ("workflow", "configs", "rltok_core"):
        shutil.copytree(REPO / name, folder / name)  # with what numba has compiled
    for name in ("Snakefile", "profiles", "slurm"):
        shutil.copy(REPO / name, folder / name, follow_symlinks=False)
    return folder


def edit(profile: Path) -> None:
    """Make the page's change to the one file; each of its pieces is there exactly once."""
    (change,) = re.findall(r"^```diff\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    text = profile.read_text("utf-8")
    for piece in change.split("@@\n"):
        lines = piece.splitlines(keepends=True)
        old, new = ("".join(one[1:] for one in lines if one[0] in f" {sign}") for sign in "-+")
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    # the page's profile asks for the status at first after 20 s; a test has less patience
    assert "status-checks: 20\n" in text
    profile.write_text(text.replace("status-checks: 20\n", "status-checks: 2\n"), "utf-8")


def shell(commands: str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # as the page installs
    done = subprocess.run(
        ["bash", "-e", "-c", commands],
        cwd=folder,
        env={**os.environ, "PATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def local(tmp_path_factory) -> Path:
    """The page's two runs without SLURM."""
    folder = checkout(tmp_path_factory.mktemp("local"))
    assert RUN.count(" --profile slurm --configfile") == 1
    shell(RUN.splitlines()[1].replace(" --profile slurm", ""), folder)
    return folder


@pytest.fixture(scope="module")
def followed(tmp_path_factory, cluster, long_training, local) -> Path:
    folder = checkout(tmp_path_factory.mktemp("followed"))
    edit(folder / "workflow/profiles/slurm/config.yaml")
    words = shell(RUN, folder)
    planned = len(read_experiment(REPO / "configs/experiments/paper.yaml")[1])
    assert len(re.findall("^rule train:", words, re.MULTILINE)) == planned + 2
    assert re.search(rf"paper: {planned} runs, .* [\d.]+ hours of one H100", words)
    return folder


@pytest.fixture(scope="module")
def runs() -> list:
    values = yaml.safe_load((REPO / "configs/experiments/smoke.yaml").read_text())
    values["matrix"] = yaml.safe_load(re.search(r"'matrix=(.*)'", RUN)[1])
    return load_experiment(values, "smoke", REPO / "configs")[1]


def test_the_page_installs_by_make(runs):
    assert INSTALL.splitlines() == ["make environment", "source .venv/bin/activate"]
    assert [run.estimator.label for run in runs] == ["uniform", "score_function"]


def test_every_job_goes_through_sbatch_as_asked(cluster, followed, runs):
    jobs = submitted(cluster, followed)
    ids = [run.id for run in runs]
    assert sorted(job["Comment"] for job in jobs) == sorted(
        [f"rule_build_data_wildcards_{runs[0].data.id}"]
        + [f"rule_{rule}_wildcards_{run}" for rule in ("train", "evaluate") for run in ids]
    )
    assert {(job["State"], job["Account"]) for job in jobs} == {("COMPLETED", "lab")}
    for job in jobs:
        assert job["Partition"] == ("cpu" if "build_data" in job["Comment"] else "gpu")
    for run in ids:  # what they wrote was written in them
        wrote = json.loads((followed / "results/smoke/runs" / run / "manifest.json").read_text())
        assert wrote["slurm_job"] in {job["JobID"] for job in jobs if run in job["Comment"]}


def test_results_are_the_local_runs_bit_for_bit(local, followed, runs):
    for run in runs:
        weights = [
            torch.load(home / f"results/smoke/runs/{run.id}/final.pt", weights_only=True)["model"]
            for home in (local, followed)
        ]
        assert weights[0].keys() == weights[1].keys()
        assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
        here, there = (home / "results/smoke/evaluations" / run.id for home in (local, followed))
        for name in ("documents.csv", "heatmap.json"):
            assert (here / name).read_bytes() == (there / name).read_bytes()
        scores = [json.loads((home / "evaluation.json").read_text()) for home in (here, there)]
        assert scores[0].keys() == scores[1].keys()
        for key in scores[0].keys() - CLOCKS:
            assert scores[0][key] == scores[1][key], key


def test_the_report_is_where_the_page_says(followed):
    name = "paper_figures/smoke/report.html"
    assert f"`{name}`" in PAGE and (followed / name).is_file()
