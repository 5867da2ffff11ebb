"""The progress line's arithmetic, and what it must not import."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time

import pytest

from rltok_core.cli import main
from rltok_core.report.progress import last_record, line, remaining_seconds, state


def _states(lab, now=None):
    return [state(run, lab.results, now or time.time()) for run in lab.runs]


def _log(lab, run, step, seconds, holder=None):
    folder = lab.results / "runs" / run.id
    folder.mkdir(parents=True, exist_ok=True)
    record = {"kind": "train", "step": step, "seconds": seconds}
    (folder / "metrics.jsonl").write_text(json.dumps(record) + "\n")
    if holder is not None:
        (folder / "lock").write_text(json.dumps(holder))


def _me():
    return {"pid": os.getpid(), "host": socket.gethostname(), "slurm_job": None}


@pytest.fixture
def four(lab):
    # 100 steps x 4 rows x 64 bytes: 25600 bytes a run
    lab.plan([lab.block("prose", ["uniform", "hnet"])], seeds=[0, 1])
    return lab


def test_nothing_measured_yet(four):
    assert remaining_seconds(_states(four)) is None
    words = line(_states(four), time.time())
    assert words == ("trained 0/4 | evaluated 0/4 | 0.0 of 0.1 MB | estimate in a moment")


def test_remaining_time_counts_speed_and_neighbours(four):
    uniform0, uniform1, hnet0, hnet1 = four.runs
    four.finish(uniform0)
    _log(four, uniform0, 100, 50.0)  # 512 bytes a second
    _log(four, hnet0, 25, 25.0, _me())  # 256 bytes a second; 75 s remain
    states = _states(four)
    # uniform1 at uniform's own speed 50 s, hnet0 75 s, hnet1 100 s; one training at a time
    assert remaining_seconds(states) == pytest.approx(50 + 75 + 100)
    _log(four, uniform1, 50, 25.0, _me())  # now two at a time
    assert remaining_seconds(_states(four)) == pytest.approx((25 + 75 + 100) / 2)
    words = line(_states(four), time.time())
    assert "trained 1/4" in words
    assert "running prose/uniform/s1 50 %, prose/hnet/s0 25 %" in words
    assert "since the start" in words
    assert "about 2 min of training remain" in words


def test_a_dead_holder_is_not_running(four):
    run = four.runs[0]
    _log(four, run, 10, 5.0, _me() | {"pid": 2**22 + 12345})
    assert not _states(four)[0].running
    _log(four, run, 10, 5.0, {"pid": 1, "host": "another-node", "slurm_job": "7"})
    assert _states(four)[0].running
    assert not _states(four, now=time.time() + 3600)[0].running


def test_failed_runs_are_done_and_named(four):
    for run in four.runs[1:]:
        four.finish(run)
    four.fail(four.runs[0], "nan")
    words = line(_states(four), time.time())
    assert "1 failed" in words
    assert words.endswith("complete")


def test_scores_of_removed_runs_are_not_the_end(four):
    for run in four.runs:
        four.finish(run)
    assert line(_states(four), time.time()).endswith("complete")
    shutil.rmtree(four.results / "runs" / four.runs[0].id)
    words = line(_states(four), time.time())
    assert "trained 3/4 | evaluated 4/4" in words
    assert not words.endswith("complete")


def test_last_record_skips_a_torn_line(tmp_path):
    path = tmp_path / "metrics.jsonl"
    assert last_record(path) == {}
    path.write_text('{"step": 1}\n{"step": 2}\n{"st')
    assert last_record(path) == {"step": 2}
    path.write_text('{"st')
    assert last_record(path) == {}


def test_command_watches_until_complete(four, capsys):
    for run in four.runs:
        four.finish(run)
    assert main(["progress", "--experiment", str(four.file), "--watch", "0.1"]) == 0
    assert "trained 4/4 | evaluated 4/4" in capsys.readouterr().out


def test_imports_neither_torch_nor_pandas():
    code = (
        "import sys, rltok_core.report.progress as p; "
        "print(sorted({'torch', 'pandas', 'matplotlib', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_report_never_imports_torch():
    code = "import sys, rltok_core.report.cli; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_watch_ends_with_its_parent(four):
    # the shell starts the watcher and dies; the watcher must notice
    command = f"{sys.executable} -m rltok_core progress --experiment {four.file} --watch 0.2"
    shell = subprocess.run(
        ["sh", "-c", f"{command} >/dev/null 2>&1 & echo $!; sleep 3"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    pid = int(shell.stdout)
    for _ in range(100):
        if not os.path.exists(f"/proc/{pid}"):
            return
        time.sleep(0.1)
    os.kill(pid, 9)
    pytest.fail("the watcher outlived its parent")
