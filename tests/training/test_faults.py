"""Never lost: processes killed at random moments, wherever they are, end with the same weights.

A run is started, killed with SIGKILL after a random time, started again, and so on, until it ends
by itself; the moments are drawn from fixed seeds. Compared with a run that nothing interrupted are
the final weights, the optimiser, the random states and every line of the metrics, bit for bit.
A few kills by default; `pytest -m slow` kills 200 times, and 40 times one or both of two ranks.
"""

import contextlib
import os
import signal
import threading
import time

import numpy as np
import pytest

from rltok_core.training.loop import train

pytestmark = pytest.mark.usefixtures("warm")

STEPS = 24
GRACE = 20.0  # seconds for a rank to notice that another died, unless it waits for its arrival


@pytest.fixture(scope="module")
def bench(make_bench):
    return make_bench()


@pytest.fixture(scope="module")
def uninterrupted(bench, ranked, forked, warm):
    """By number of ranks: the run, its folder, and the seconds it took."""
    found = {}
    for size in (1, 2):
        run = bench.run(
            steps=STEPS,
            validate_every=7,
            controller={"gain": 0.1},
            runtime={"micro_batch": 2, "checkpoint_every": 1, "log_every": 1},
        )
        out = bench.folder / f"whole_{size}"
        began = time.monotonic()
        codes = ranked(lambda run=run, out=out: train(run, bench.data, out), size)
        assert {code for code, _ in codes} == {0}, codes
        found[size] = run, out, time.monotonic() - began
    return found


def kill(processes) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


def kill_again_and_again(bench, start_ranks, uninterrupted, size: int, kills: int, seed: int):
    """Runs, each killed until it ends by itself, until there have been that many kills.

    Returns:
        What the kills hit: how many runs, kills, kills inside the writing of a file, resumes.
    """
    run, whole, seconds = uninterrupted[size]
    random = np.random.default_rng(seed)
    hits = {"runs": 0, "kills": 0, "while writing": 0, "resumes": 0}
    while hits["kills"] < kills:
        out = bench.folder / f"killed_{size}_{seed}_{hits['runs']}"
        hits["runs"] += 1
        for attempt in range(1000):
            ranks = start_ranks(lambda out=out: train(run, bench.data, out), size)
            # mostly in the middle of it; the last tries are let run to the end
            patience = float(random.uniform(0.02, 0.7 * seconds))
            doomed = [r for r in range(size) if random.random() < 0.7] or [0]
            launcher = threading.Timer(GRACE, kill, [ranks])  # ends those who wait for a dead one
            if hits["kills"] < kills and attempt < 12:
                time.sleep(patience)
                kill(ranks[rank] for rank in doomed)
                launcher.start()
            codes = [rank.wait()[0] for rank in ranks]
            launcher.cancel()
            hits["kills"] += codes.count(-signal.SIGKILL) > 0
            hits["while writing"] += bool(list(out.rglob(".*.tmp")))
            hits["resumes"] += attempt > 0
            if codes == [0] * size:
                break
            assert -signal.SIGKILL in codes, codes
        bench.assert_same_run(whole, out, STEPS)
        assert not list(out.rglob(".*.tmp"))
    return hits


def test_promise_1_killed_at_random_moments(bench, start_ranks, uninterrupted):
    hits = kill_again_and_again(bench, start_ranks, uninterrupted, 1, kills=10, seed=0)
    assert hits["kills"] >= 10


def test_promise_1_two_ranks_killed_at_random_moments(bench, start_ranks, uninterrupted):
    hits = kill_again_and_again(bench, start_ranks, uninterrupted, 2, kills=3, seed=1)
    assert hits["kills"] >= 3


@pytest.mark.slow
def test_promise_1_killed_200_times(bench, start_ranks, uninterrupted, capsys):
    found = [
        kill_again_and_again(bench, start_ranks, uninterrupted, 1, kills=40, seed=seed)
        for seed in range(2, 7)
    ]
    with capsys.disabled():
        print(f"\n{len(found)} seeds: {found}")
    assert sum(hits["kills"] for hits in found) >= 200
    assert sum(hits["while writing"] for hits in found) > 0


@pytest.mark.slow
def test_promise_1_two_ranks_killed_40_times(bench, start_ranks, uninterrupted, capsys):
    hits = kill_again_and_again(bench, start_ranks, uninterrupted, 2, kills=40, seed=7)
    with capsys.disabled():
        print(f"\n{hits}")
    assert hits["kills"] >= 40
