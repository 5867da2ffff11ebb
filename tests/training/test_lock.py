"""K31: one writer a run folder."""

import json
import os
import signal
import socket
import sys

import pytest

from rltok_core.errors import EXIT_LOCKED, UserError
from rltok_core.training.lock import run_lock
from rltok_core.training.signals import StopSignals


def test_K31_a_second_process_is_refused_and_names_the_holder(tmp_path, forked, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "4711")

    def second() -> int:
        try:
            with run_lock(tmp_path):
                return 0
        except UserError as error:
            print(error, file=sys.stderr)
            return error.code

    with run_lock(tmp_path):
        code, text = forked(second)
    assert code == EXIT_LOCKED
    assert f"pid {os.getpid()} on {socket.gethostname()}" in text
    assert "SLURM job 4711" in text and str(tmp_path) in text
    assert forked(second) == (0, "")  # released, and nothing to take over


def test_K31_the_lock_of_a_killed_process_is_taken_over_with_a_note(tmp_path, forked, capsys):
    pids = tmp_path / "pid"

    def killed() -> int:
        with run_lock(tmp_path):
            pids.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)

    assert forked(killed)[0] == -signal.SIGKILL
    with run_lock(tmp_path):
        note = capsys.readouterr().err
        assert "took over" in note and f"pid {pids.read_text()} on" in note
    with run_lock(tmp_path):
        assert capsys.readouterr().err == ""


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETING", "PENDING", ""])
def test_K31_a_living_job_keeps_its_lock_where_the_kernel_knows_nothing_of_it(
    tmp_path, monkeypatch, state
):
    """As on a file system whose locks don't reach from node to node."""
    squeue = tmp_path / "bin/squeue"
    squeue.parent.mkdir()
    squeue.write_text(f'#!/bin/sh\ncase "$*" in *"--jobs 4711 "*) echo {state} ;; esac\n')
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", str(squeue.parent), prepend=":")
    who = {"pid": 1, "host": "elsewhere", "slurm_job": "4711"}
    (tmp_path / "lock").write_text(json.dumps(who))
    if state in ("RUNNING", "COMPLETING"):
        with pytest.raises(UserError, match="pid 1 on elsewhere, SLURM job 4711") as error:
            run_lock(tmp_path).__enter__()
        assert error.value.code == EXIT_LOCKED
        assert json.loads((tmp_path / "lock").read_text()) == who
        monkeypatch.setenv("SLURM_JOB_ID", "4711")  # put back into the queue, on another node
    with run_lock(tmp_path):
        assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()


def test_an_error_inside_releases_the_lock(tmp_path, capsys):
    with pytest.raises(ZeroDivisionError), run_lock(tmp_path):
        _ = 1 / 0
    with run_lock(tmp_path):
        assert capsys.readouterr().err == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_signals_set_a_flag_and_old_handlers_come_back(number):
    before = signal.getsignal(number)
    with StopSignals() as stop:
        assert stop.asked is None
        os.kill(os.getpid(), number)
        assert stop.asked == signal.Signals(number).name
    assert signal.getsignal(number) is before


def test_a_second_interrupt_ends_at_once():
    with pytest.raises(KeyboardInterrupt), StopSignals():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
