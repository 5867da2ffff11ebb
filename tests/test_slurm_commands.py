"""SLURM's answers as the project reads them; what it does with them is tested in tests/slurm."""

import pytest

from rltok_core import slurm


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Put a stand-in for a command of SLURM, with its words, in the place of the real one."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def make(name: str, words: str, code: int = 0) -> None:
        (tmp_path / name).write_text(f"#!/bin/sh\ncat <<'END'\n{words}\nEND\nexit {code}\n")
        (tmp_path / name).chmod(0o755)

    return make


def test_time_limits_are_minutes(command):
    command("sinfo", "cpu*|2-12:00:00\ngpu|4:30:00\nquick|30:00\nopen|infinite")
    assert slurm.longest_minutes() == {
        "cpu": 3600,
        "": 3600,
        "gpu": 270,
        "quick": 30,
        "open": float("inf"),
    }


def test_without_slurm_nothing_is_known(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert slurm.longest_minutes() == {} and slurm.left_behind(tmp_path, {"rule_train"}) == {}
    assert slurm.allocation() is None and slurm.run_again_if_time_is_over() is None
    assert not slurm.is_alive("4711")


RECORD = "JobId=12 JobState=COMPLETING Reason={} TimeLimit=00:01:00 PreemptTime={} NodeList=alpha"


@pytest.mark.parametrize(
    ("reason", "preempt", "words"),
    [
        ("TimeLimit", "None", "the time limit of 00:01:00 is over; it is in the queue again"),
        ("None", "2026-11-30T22:00:00", "preempted; it is in the queue again"),
        ("None", "None", None),  # scancel
    ],
)
def test_a_job_that_is_cancelled_stays_out_of_the_queue(
    command, monkeypatch, reason, preempt, words
):
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    command("scontrol", RECORD.format(reason, preempt))
    assert slurm.run_again_if_time_is_over() == (words and f"SLURM job 12: {words}")


def test_jobs_left_behind_are_those_of_this_folder_and_this_plan(command, tmp_path):
    lines = [f"1|{tmp_path}|rule_train_a", f"2|{tmp_path}|rule_train_b", "3|/else|rule_train_a"]
    command("squeue", "\n".join(lines))
    assert slurm.left_behind(tmp_path, {"rule_train_a"}) == {"1": "rule_train_a"}
