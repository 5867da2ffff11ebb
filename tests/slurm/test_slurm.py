"""Snakemake on a real SLURM: `make test-slurm` (root; some minutes, most of them waiting).

Not run by `make test`. Each test waits for events, never for a time, so a slow machine is no fault.
"""

import re
import shlex
import signal
import subprocess

import pytest
import torch
from slurm_folder import REPO, Folder, submitted, wait_for

from rltok_core.errors import EXIT_LOCKED

pytestmark = pytest.mark.slurm


@pytest.fixture(scope="module", autouse=True)
def beside(long_training):
    """The long training runs while the other tests do."""


def check_gpus(folder: Folder, job: dict[str, str], option: str, gpus: str) -> None:
    """K31: the option reached sbatch unmangled, and the job has and prints what it asked for."""
    assert option in job["SubmitLine"].split(" --wrap")[0].split()
    first = folder.log().splitlines()[0]
    printed = re.match(r"rltok train: SLURM job (\d+) on \w+, until \S+: (\S+); GPUs (.*)", first)
    assert printed[1] == job["JobID"] and re.fullmatch(gpus, printed[3])
    assert set(printed[2].split(",")) == set(job["AllocTRES"].split(","))
    assert f"gres/gpu={1 + printed[3].count(',')}" in printed[2]


def test_preempted_requeued_and_cancelled_it_goes_on(cluster, slow_folder, undisturbed):
    """`scancel` costs a retry, preemption none; no step is lost or done twice."""
    folder = slow_folder("disturbed", steps=50, seconds=4.0)
    asked = ("train:slurm_partition=spare", "train:gpu=1", "train:gpu_model=fake")
    process = folder.start("--set-resources", *asked)
    folder.reached(1)
    (job,) = folder.jobs()
    ask = "--parsable --partition=urgent --exclusive --output=/dev/null --wrap=:"
    urgent = cluster("sbatch", *ask.split())
    wait_for(lambda: "COMPLETED" in cluster("sacct", "-nXo", "state", "-j", urgent), "urgent job")
    folder.reached(folder.steps()[-1] + 1)
    assert folder.jobs() == [job]
    cluster("scancel", job)
    folder.hurry()
    words = folder.finish(process)
    assert f"SLURM-job '{job}' failed, SLURM status is: 'CANCELLED'" in words
    assert len(folder.jobs()) == 2
    folder.check_whole(undisturbed(50))
    assert len(folder.summary()["resumed_from"]) == 2
    check_gpus(folder, submitted(cluster, folder.path)[-1], "--gpus=fake:1", "[01]")


def test_a_message_names_rule_run_job_and_logs(slow_folder):
    """Of a job that can't succeed: not a sum of the retries is needed to know why."""
    folder = slow_folder("wrong", steps=5)
    manifest = next(folder.path.glob("results/data/*/manifest.json"))
    manifest.write_text("{}")
    words = folder.finish(folder.start("--retries", "0"), code=1)
    (job,) = folder.jobs()
    run = folder.run.name
    error = words[words.index("Error in rule train") :]
    assert f"SLURM-job '{job}' failed" in error and f"external_jobid: {job}" in error
    assert f"results/logs/train/{run}.log" in error and f"rule_train/{run}/{job}.log" in error
    assert "manifest.json" in error  # the job's own words, shown at the end


def test_snakemake_killed_and_interrupted_loses_nothing(cluster, slow_folder, undisturbed):
    folder = slow_folder("killed", steps=50, seconds=4.0)
    first = folder.start()
    folder.reached(1)
    first.kill()
    first.wait()
    (left,) = folder.jobs()
    folder.reached(folder.steps()[-1] + 1)  # the job runs on

    # K31: nobody else may write there
    run = folder.config
    command = folder.command()
    second = subprocess.run(command, capture_output=True, text=True, cwd=REPO, check=False)
    assert second.returncode == EXIT_LOCKED
    assert f"SLURM job {left}" in second.stderr and " on " in second.stderr

    # Snakemake says how to go on, and then does
    assert "--unlock" in folder.finish(folder.start(), code=1)
    folder.finish(folder.start("--unlock"))
    third = folder.start()
    wait_for(lambda: len(folder.jobs()) == 2, "the job's successor")
    assert f"SLURM job {left} (rule_train_wildcards_{run.id}) was left behind" in (
        folder.words.read_text()
    )
    assert "RUNNING" not in cluster("squeue", "-h", "-j", left, "-t", "all", "-o", "%T")
    folder.reached(folder.steps()[-1] + 1)
    third.send_signal(signal.SIGINT)
    folder.finish(third, code=1)
    wait_for(lambda: not cluster("squeue", "-h", "-j", folder.jobs()[-1]), "end of the job")
    assert not folder.run.joinpath("final.pt").exists()

    folder.hurry()
    folder.finish(folder.start())
    assert len(folder.jobs()) == 3
    folder.check_whole(undisturbed(50))
    assert len(folder.summary()["resumed_from"]) == 2


def test_a_job_over_its_memory_has_more_the_next_time(cluster, slow_folder, undisturbed):
    """It needs 2.2 GB and what PyTorch takes; it has 2 GB, then 4."""
    folder = slow_folder("hungry", steps=20, memory_mb=2200)
    words = folder.finish(folder.start("--set-resources", "train:gres=gpu:fake:2"))
    first, second = submitted(cluster, folder.path)
    assert first["State"] == "FAILED"  # OUT_OF_MEMORY where cgroups hold the limit
    assert f"SLURM-job '{first['JobID']}' failed" in words
    assert second["State"] == "COMPLETED"
    had, has = (int(re.search(r"mem=(\d+)M", job["ReqTRES"])[1]) for job in (first, second))
    assert had < 2200 and has in (2 * had, 2 * had + 1)
    folder.check_whole(undisturbed(20))
    check_gpus(folder, second, "--gres=gpu:fake:2", "0,1")


def test_two_ranks_have_both_gpus(cluster, slow_folder):
    """One task, in which `rltok train` starts a rank a GPU (over gloo: the GPUs are fake)."""
    folder = slow_folder("ranks", steps=20, runtime={"gpus": 2, "micro_batch": 2})
    folder.finish(folder.start("--set-resources", "train:gpu_model=fake"))
    (job,) = submitted(cluster, folder.path)
    asked, given = job["SubmitLine"].split(" --wrap")[0].split(), job["AllocTRES"].split(",")
    assert {"--gpus=fake:2", "--nodes=1", "--ntasks=1"} >= {
        word for word in asked if "gpus" in word
    }
    assert {"gres/gpu=2", "cpu=2", "node=1"} <= set(given)
    first = folder.log().splitlines()[0]
    assert set(given) == set(re.search(r": (\S+); GPUs 0,1$", first)[1].split(","))
    assert folder.summary()["manifest"]["ranks"] == 2

    by_hand = slow_folder("ranks_by_hand", steps=20, runtime={"gpus": 2, "micro_batch": 2})
    command = by_hand.command("--ranks", "2")
    subprocess.run(command, check=True, capture_output=True, cwd=REPO)
    folder.check_whole(torch.load(by_hand.run / "final.pt", weights_only=True)["model"])


def test_two_nodes_meet_by_slurms_own_settings(cluster, slow_folder):
    """docs/distributed.md: srun starts one `rltok train` a node, and no setting is needed."""
    two, one = (slow_folder(name, steps=20, runtime={"micro_batch": 2}) for name in ("two", "one"))
    step = shlex.join(["srun", "--nodes=2", "--ntasks-per-node=1", *two.command("--ranks", "2")])
    ask = ["--wait", "--partition=cpu", "--nodes=2", "--ntasks-per-node=1", "--mem=2000"]
    cluster("sbatch", *ask, f"--chdir={REPO}", f"--output={two.path}/log", f"--wrap={step}")
    assert two.summary()["manifest"]["ranks"] == 2, (two.path / "log").read_text()
    subprocess.run(one.command("--ranks", "2"), check=True, capture_output=True, cwd=REPO)
    two.check_whole(torch.load(one.run / "final.pt", weights_only=True)["model"])


def test_an_impossible_request_is_refused_and_not_waited_for(slow_folder):
    folder = slow_folder("impossible", steps=5)
    ask = ("--retries", "0", "--set-resources", "train:gres=gpu:h200:1")
    words = folder.finish(folder.start(*ask), code=1)
    assert "SLURM sbatch failed" in words and "--gres=gpu:h200:1" in words
    words = folder.finish(folder.start("--set-resources", "train:runtime=3000"), code=1)
    assert "train asks for 3000 minutes" in words and "2880" in words
    assert "nothing was started" in words and not folder.jobs()


def test_a_training_that_needs_three_allocations_has_them(cluster, long_training, undisturbed):
    folder, process = long_training
    folder.finish(process)
    jobs = ",".join(folder.jobs())
    states = cluster("sacct", "-nXD", "-o", "state", "-j", jobs).split()
    # TIMEOUT: on a slow machine a minute may be over before a step is done, and a retry is spent
    assert states[-1] == "COMPLETED" and set(states[:-1]) <= {"REQUEUED", "TIMEOUT"}
    assert states.count("REQUEUED") >= 2
    folder.check_whole(undisturbed(60))
    assert len(folder.summary()["resumed_from"]) >= 2
