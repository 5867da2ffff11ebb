"""Snakemake on a real SLURM: `make test-slurm` (root; some minutes, most of them waiting).

Not run by `make test`. Each test waits for events, never for a time, so a slow machine is no fault.
"""

import json
import re
import signal
import subprocess
import sys

import pytest
from slurm_folder import REPO, Folder, assert_equal_weights, wait_for

from rltok_core.errors import EXIT_LOCKED

pytestmark = pytest.mark.slurm

LONG = {"steps": 60, "seconds": 3.0}  # at most 90 s an allocation of one minute: two don't do
CLOCKS = {"train_seconds", "bytes_per_second", "peak_memory_bytes", "manifest"}


@pytest.fixture(scope="module", autouse=True)
def long_training(slow_folder):
    """Started first, looked at last: needs three allocations of a minute."""
    folder = slow_folder("long", **LONG)
    process = folder.start("--set-resources", "train:runtime=1", *folder.train_only())
    yield folder, process
    process.kill()


@pytest.fixture(scope="module")
def local(tmp_path_factory, cluster, base, words):
    """Two methods, run by the local executor: what SLURM's results are compared with."""
    block = {"data": words, "size": "tiny", "estimators": ["uniform", "score_function"]}
    folder = Folder(
        tmp_path_factory.mktemp("slurm") / "local", cluster, {**base, "matrix": [block]}
    )
    folder.finish(folder.start(profile=False))
    return folder


@pytest.fixture(scope="module")
def matrix(tmp_path_factory, cluster, local):
    """The local experiment again, every job through SLURM."""
    folder = Folder(tmp_path_factory.mktemp("slurm") / "matrix", cluster, local.experiment)
    # the two ways of asking for a GPU
    asked = ["train:gpu=1", "train:gpu_model=fake", "evaluate:gres=gpu:fake:1"]
    folder.finish(folder.start("--set-resources", *asked))
    return folder


def submitted(cluster, folder) -> list[dict[str, str]]:
    """SLURM's own account of the jobs that were submitted in a folder."""
    fields = "JobID,Comment,State,ExitCode,ReqTRES,AllocTRES,WorkDir,SubmitLine"
    text = cluster("sacct", "-X", "-n", "-P", "--delimiter=\t", f"--format={fields}")
    rows = [dict(zip(fields.split(","), row.split("\t"), strict=True)) for row in text.split("\n")]
    return [row for row in rows if row["WorkDir"] == str(folder.path)]


def test_every_job_goes_through_sbatch(cluster, matrix):
    jobs = submitted(cluster, matrix)
    names = sorted(job["Comment"] for job in jobs)
    runs = [run.id for run in matrix.runs]
    assert names == sorted(
        [f"rule_build_data_wildcards_{matrix.runs[0].data.id}"]
        + [f"rule_{rule}_wildcards_{run}" for rule in ("train", "evaluate") for run in runs]
    )
    assert {job["State"] for job in jobs} == {"COMPLETED"}
    for run in matrix.runs:  # and what they wrote was written in them
        file = matrix.path / "results/runs" / run.id / "manifest.json"
        trained = json.loads(file.read_text())["slurm_job"]
        assert trained in {job["JobID"] for job in jobs if job["Comment"].startswith("rule_train")}


def test_results_are_the_local_runs_bit_for_bit(local, matrix):
    for run in local.runs:
        here, there = (folder.path / "results" for folder in (local, matrix))
        assert_equal_weights(there / f"runs/{run.id}/final.pt", local.weights(run))
        for name in ("documents.csv", "heatmap.json"):
            file = f"evaluations/{run.id}/{name}"
            assert (there / file).read_bytes() == (here / file).read_bytes(), file
        scores = [
            json.loads((folder / f"evaluations/{run.id}/evaluation.json").read_text())
            for folder in (here, there)
        ]
        assert scores[0].keys() == scores[1].keys()
        for key in scores[0].keys() - CLOCKS:
            assert scores[0][key] == scores[1][key], key
    assert (matrix.path / "paper_figures/two_methods/report.html").is_file()


def test_K31_gres_and_gpu_reach_sbatch_unmangled(cluster, matrix):
    for job in submitted(cluster, matrix):
        words = job["SubmitLine"].split(" --wrap")[0].split()
        train, evaluate = (
            job["Comment"].startswith(f"rule_{rule}") for rule in ("train", "evaluate")
        )
        assert ("--gpus=fake:1" in words) == train
        assert ("--gres=gpu:fake:1" in words) == evaluate
        assert ("gres/gpu=1" in job["AllocTRES"].split(",")) == (train or evaluate)


def test_a_job_prints_what_it_was_given(cluster, matrix):
    jobs = {job["Comment"]: job for job in submitted(cluster, matrix)}
    for run in matrix.runs:
        job = jobs[f"rule_train_wildcards_{run.id}"]
        first = (matrix.path / f"results/logs/train/{run.id}.log").read_text().splitlines()[0]
        given = re.match(r"rltok train: SLURM job (\d+) on \w+, until \S+: (\S+); GPUs (.*)", first)
        assert given[1] == job["JobID"]
        assert set(given[2].split(",")) == set(job["AllocTRES"].split(","))
        assert given[3] in ("0", "1")


def test_preempted_requeued_and_cancelled_it_goes_on(cluster, slow_folder, undisturbed):
    """`scancel` costs a retry, preemption none; no step is lost or done twice."""
    folder = slow_folder("disturbed", steps=40, seconds=1.0)
    process = folder.start("--set-resources", "train:slurm_partition=spare", *folder.train_only())
    folder.reached(3)
    (job,) = folder.jobs()
    ask = "--parsable --partition=urgent --exclusive --output=/dev/null --wrap=:"
    urgent = cluster("sbatch", *ask.split())
    wait_for(lambda: "COMPLETED" in cluster("sacct", "-nXo", "state", "-j", urgent), "urgent job")
    before = folder.steps()[-1]
    folder.reached(before + 3)
    assert folder.jobs() == [job]
    cluster("scancel", job)
    words = folder.finish(process)
    assert f"SLURM-job '{job}' failed, SLURM status is: 'CANCELLED'" in words
    assert len(folder.jobs()) == 2
    folder.check_whole(undisturbed(40))
    assert len(folder.summary()["resumed_from"]) == 2


def test_a_message_names_rule_run_job_and_logs(slow_folder, long_training):
    """Of a job that can't succeed: not a sum of the retries is needed to know why."""
    folder = slow_folder("wrong", steps=5)
    manifest = next(folder.path.glob("results/data/*/manifest.json"))
    manifest.write_text("{}")
    words = folder.finish(folder.start("--retries", "0", *folder.train_only()), code=1)
    (job,) = folder.jobs()
    run = folder.run.name
    error = words[words.index("Error in rule train") :]
    assert f"SLURM-job '{job}' failed" in error and f"external_jobid: {job}" in error
    assert f"results/logs/train/{run}.log" in error and f"rule_train/{run}/{job}.log" in error
    assert "manifest.json" in error  # the job's own words, shown at the end


def test_snakemake_killed_and_interrupted_loses_nothing(cluster, slow_folder, undisturbed):
    folder = slow_folder("killed", steps=60, seconds=1.0)
    goal = folder.train_only()
    first = folder.start(*goal)
    folder.reached(3)
    first.kill()
    first.wait()
    (left,) = folder.jobs()
    folder.reached(folder.steps()[-1] + 2)  # the job runs on

    # K31: nobody else may write there
    run = folder.runs[0]
    command = [sys.executable, "-m", "rltok_core", "train", "--out", str(folder.run)]
    command += ["--config", str(folder.run / "config.yaml")]
    command += ["--data", str(folder.path / "results/data" / run.data.id)]
    second = subprocess.run(command, capture_output=True, text=True, cwd=REPO, check=False)
    assert second.returncode == EXIT_LOCKED
    assert f"SLURM job {left}" in second.stderr and " on " in second.stderr

    # Snakemake says how to go on, and then does
    assert "--unlock" in folder.finish(folder.start(*goal), code=1)
    folder.finish(folder.start("--unlock", *goal))
    third = folder.start(*goal)
    wait_for(lambda: len(folder.jobs()) == 2, "the job's successor")
    assert f"SLURM job {left} (rule_train_wildcards_{run.id}) was left behind" in (
        folder.words.read_text()
    )
    assert "RUNNING" not in cluster("squeue", "-h", "-j", left, "-t", "all", "-o", "%T")
    folder.reached(folder.steps()[-1] + 2)
    third.send_signal(signal.SIGINT)
    folder.finish(third, code=1)
    wait_for(lambda: not cluster("squeue", "-h", "-j", folder.jobs()[-1]), "end of the job")
    assert not folder.run.joinpath("final.pt").exists()

    folder.finish(folder.start(*goal))
    assert len(folder.jobs()) == 3
    folder.check_whole(undisturbed(60))
    assert len(folder.summary()["resumed_from"]) == 2


def test_a_job_over_its_memory_has_more_the_next_time(cluster, slow_folder, undisturbed):
    """It needs 2.2 GB and what PyTorch takes; it has 2 GB, then 4."""
    folder = slow_folder("hungry", steps=20, seconds=0.1, memory_mb=2200)
    words = folder.finish(folder.start(*folder.train_only()))
    first, second = submitted(cluster, folder)
    assert first["State"] in ("FAILED", "OUT_OF_MEMORY", "CANCELLED") or first["ExitCode"] != "0:0"
    assert f"SLURM-job '{first['JobID']}' failed" in words
    assert second["State"] == "COMPLETED"
    assert "mem=2000M" in first["ReqTRES"] and "mem=4000M" in second["ReqTRES"]
    folder.check_whole(undisturbed(20))


def test_an_impossible_request_is_refused_and_not_waited_for(slow_folder):
    folder = slow_folder("impossible", steps=5)
    ask = ("--retries", "0", "--set-resources", "train:gres=gpu:h200:1")
    words = folder.finish(folder.start(*ask, *folder.train_only()), code=1)
    assert "SLURM sbatch failed" in words and "--gres=gpu:h200:1" in words


def test_a_training_that_needs_three_allocations_has_them(cluster, long_training, undisturbed):
    folder, process = long_training
    folder.finish(process)
    (job,) = folder.jobs()  # SLURM's queue, not Snakemake's retries
    states = cluster("sacct", "-nXD", "-o", "state", "-j", job).split()
    assert len(states) >= 3 and states[-1] == "COMPLETED"
    assert set(states[:-1]) == {"REQUEUED"}
    folder.check_whole(undisturbed(LONG["steps"]))
    assert len(folder.summary()["resumed_from"]) == len(states) - 1
