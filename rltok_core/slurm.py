"""What the project asks of SLURM: who a job is, whether it still runs, and to run it once more.

Everything goes through SLURM's own commands; where they are missing (a laptop, the inside of a
container) there is no SLURM, and each function says so by its result.
"""

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

ANSWER_SECONDS = 60  # a busy controller may take that long
GONE_SECONDS = 600  # for a job that is told to end: SLURM's own wait, and a busy node


def job_id() -> str | None:
    """The SLURM job that this process runs in."""
    return os.environ.get("SLURM_JOB_ID")


def _ask(*command: str) -> str | None:
    """What a command of SLURM prints; None if it isn't here, fails or does not answer."""
    if not shutil.which(command[0]):
        return None
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=ANSWER_SECONDS
        )
    except subprocess.TimeoutExpired:
        return None
    return done.stdout if done.returncode == 0 else None


def _record() -> dict[str, str]:
    """What SLURM knows of this job; empty outside of SLURM."""
    record = job_id() and _ask("scontrol", "--oneliner", "show", "job", job_id())
    return dict(re.findall(r"([\w/]+)=(\S*)", record or ""))


def allocation() -> str | None:
    """One line on what SLURM gave this job, for its log; None outside of SLURM."""
    if not job_id():
        return None
    job = _record()
    given = job.get("AllocTRES") or job.get("TRES")  # newer and older SLURMs
    return (
        f"SLURM job {job_id()} on {job.get('NodeList')}, until {job.get('EndTime')}: {given}; "
        f"GPUs {os.environ.get('CUDA_VISIBLE_DEVICES') or 'none'}"
    )


def is_alive(job: str) -> bool:
    """Whether processes of the job may still be at work."""
    states = _ask("squeue", "--noheader", "--jobs", job, "--format=%T")
    return states is not None and bool({"RUNNING", "COMPLETING"} & set(states.split()))


def run_again_if_time_is_over() -> str | None:
    """Put this job back into the queue, if SLURM ends it for its time limit or for another job.

    Not after `scancel` (nor Ctrl-C in Snakemake, which is one): that is meant to end it.

    Returns:
        What happened, in words; None where there is nothing to say.
    """
    job = _record()
    preempted = job.get("PreemptTime", "None") != "None"
    if job.get("Reason") != "TimeLimit" and not preempted:
        return None
    why = "preempted" if preempted else f"the time limit of {job.get('TimeLimit')} is over"
    if _ask("scontrol", "requeue", job_id()) is None:
        return f"SLURM job {job_id()}: {why}; SLURM doesn't requeue it, Snakemake may"
    return f"SLURM job {job_id()}: {why}; it is in the queue again"


def longest_minutes() -> dict[str, float]:
    """Time limits in minutes by partition; the default partition's also under the name ""."""
    limits = {}
    for line in (_ask("sinfo", "--noheader", "--format=%P|%l") or "").splitlines():
        name, limit = line.split("|")
        # [days-]hours:minutes:seconds, or minutes:seconds
        found = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", limit)
        days, hours, minutes, _ = map(int, found.groups("0")) if found else (0, 0, 0, 0)
        longest = (days * 24 + hours) * 60 + minutes if found else float("inf")
        limits[name.rstrip("*")] = longest
        if name.endswith("*"):
            limits[""] = longest
    return limits


def left_behind(folder: Path, comments: set[str]) -> dict[str, str]:
    """Jobs of this user in the queue that were submitted in `folder` with one of the comments.

    Returns:
        comment by job id (the executor plug-in's comment names rule and wildcards).
    """
    queue = _ask("squeue", "--me", "--noheader", "--format=%A|%Z|%k") or ""
    jobs = [line.split("|", 2) for line in queue.splitlines()]
    return {job: what for job, where, what in jobs if Path(where) == folder and what in comments}


def end(jobs: list[str]) -> list[str]:
    """Tell jobs to save and end, and wait for it.

    Returns:
        Those that are still in the queue after GONE_SECONDS.
    """
    _ask("scancel", *jobs)
    give_up = time.monotonic() + GONE_SECONDS
    while True:
        queue = _ask("squeue", "--me", "--noheader", "--format=%A")
        left = jobs if queue is None else [job for job in jobs if job in queue.split()]
        if not left or time.monotonic() > give_up:
            return left
        time.sleep(1)
