"""Two ranks are one process: gradients, promises 1 to 5, locks and signals, over gloo on the CPU.

The ranks are forked, with the variables that torchrun sets; the last tests start the real launcher.
"""

import errno
import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from rltok_core import files
from rltok_core.boundaries.contract import Estimator
from rltok_core.boundaries.registry import estimator_class
from rltok_core.config.experiment import write_run
from rltok_core.config.schema import RuntimeConfig
from rltok_core.errors import (
    EXIT_LOCKED,
    EXIT_NOT_FINITE,
    EXIT_RANK_LOST,
    EXIT_REQUEUE,
    EXIT_USER,
    UserError,
)
from rltok_core.training import checkpoint, cli, loop, ranks
from rltok_core.training.inputs import open_windows
from rltok_core.training.launch import Nodes, launch, ranks_wanted, slurm_nodes
from rltok_core.training.lock import run_lock
from rltok_core.training.loop import train
from rltok_core.training.ranks import join
from rltok_core.training.trainer import Trainer, cuts

pytestmark = pytest.mark.usefixtures("warm")

KILL = {"SPY_DO": str(int(signal.SIGKILL))}
UNIFORM = {"label": "uniform", "class": "rltok_core.boundaries.uniform:Uniform"}


def test_rows_are_cut_without_loss_or_overlap():
    assert cuts(5, 0, 1) == [range(5)]
    assert cuts(5, 0, 2) == [range(2), range(2, 5)]
    assert cuts(5, 2, 2) == [range(2), range(2, 4), range(4, 5)]
    for rows, micro, size in ((4, 0, 5), (4, 2, 3), (4, 4, 2)):
        with pytest.raises(UserError, match=f"too little for {size} ranks"):
            cuts(rows, micro, size)


def test_promise_2_every_rank_count_sees_the_same_rows_and_random_numbers(bench):
    run = bench.run(batch_size=6, runtime={"micro_batch": 1})
    windows = open_windows(run, Estimator, "train", bench.data, None)
    seen = []
    for size in (1, 2, 3, 4):
        rows = []
        for rank in range(size):
            data = Trainer(run, windows, ranks.Ranks(rank, size)).batches(3)
            rows += [(batch.stream.keys_B, batch.documents) for batch in data.batches]
        seen.append((data.samples, data.total, sorted(rows)))
    assert all(one == seen[0] for one in seen)


def gradient(bench, run, file: Path) -> int:
    """The gradient and the sums of step 0, written by rank 0."""
    with join("cpu") as group:
        cls = estimator_class(run.estimator)
        torch.manual_seed(0)
        trainer = Trainer(run, open_windows(run, cls, "train", bench.data, None), group)
        sums, terms = trainer.gradient(trainer.batches(0), 0.2)
        if group.first:
            grads = {name: p.grad for name, p in trainer.model.named_parameters()}
            flops = [trainer.progress.flops_paper, trainer.progress.flops_counted]
            torch.save([grads, sums.state(), terms.state(), flops], file)
    return 0


@pytest.mark.parametrize("estimator", [None, UNIFORM], ids=["score_function", "uniform"])
def test_two_ranks_with_uneven_batches_give_the_gradient_of_one_process(
    bench, forked, ranked, estimator, tmp_path
):
    """5 rows of different lengths, 2 and 3 a rank or in micro-batches of 2: weighted by bytes.

    The policy's gradient holds what is averaged over rows (centring, the rate's mean): the same
    micro-batches give the same gradient. That of a rule holds no such thing: it is the gradient of
    the whole batch however it is cut.
    """

    def of(name: str, start, micro_batch: int = 0) -> tuple:
        run = bench.run(estimator=estimator, batch_size=5, runtime={"micro_batch": micro_batch})
        file = tmp_path / name
        found = start(lambda: gradient(bench, run, file))
        assert {code for code, _ in (found if isinstance(found, list) else [found])} == {0}, found
        return torch.load(file, weights_only=True)

    pairs = [(of("one", forked, 2), of("two", ranked, 2))]
    if estimator:
        pairs += [(of("whole", forked), other) for other in (pairs[0][1], of("halves", ranked))]
    for one, two in pairs:
        (grads, sums, terms, flops), (grads_2, sums_2, terms_2, flops_2) = one, two
        assert {n for n, g in grads.items() if g is None} == {
            n for n, g in grads_2.items() if g is None
        }
        flat, flat_2 = (
            torch.cat([g.flatten() for g in each.values() if g is not None])
            for each in (grads, grads_2)
        )
        assert float((flat - flat_2).norm() / flat.norm()) < 1e-6
        assert sums_2 == pytest.approx(sums, rel=1e-6)
        assert terms_2 == pytest.approx(terms, rel=1e-5)
        for name in ("bytes", "boundaries", "positions", "marked", "whitespace"):
            assert sums[name] == sums_2[name]
        assert flops[1] == flops_2[1]


def test_a_weight_that_one_rank_alone_has_reached_has_its_gradient_on_both(ranked, tmp_path):
    def work() -> int:
        with join("cpu") as group:
            tensors = [torch.full((3,), float(group.rank)), torch.full((2, 2), 1.0 + group.rank)]
            big = torch.full((5,), 0.5, dtype=torch.float64)
            group.total([*tensors, big])
            assert tensors[0].tolist() == [1.0] * 3 and tensors[1].tolist() == [[3.0] * 2] * 2
            assert big.tolist() == [1.0] * 5
            assert group.total_counts([1 << 60, group.rank]) == [1 << 61, 1]
            assert group.gather(group.rank) == [0, 1]
            assert group.first_does(lambda: "of the first") == "of the first"
        return 0

    assert [code for code, _ in ranked(work)] == [0, 0]


def test_gradients_are_summed_in_buckets_of_one_dtype(monkeypatch):
    monkeypatch.setattr(ranks, "BUCKET_BYTES", 40)
    tensors = [torch.zeros(n) for n in (4, 5, 1, 30, 2)] + [torch.zeros(2, dtype=torch.float64)]
    sizes = [[t.numel() for t in bucket] for bucket in ranks.buckets(tensors)]
    assert sizes == [[4, 5, 1], [30], [2], [2]]


@pytest.fixture(scope="module")
def bench(make_bench):
    return make_bench()


@pytest.fixture(scope="module")
def run(bench):
    """Two rows a rank; controller and validation are on."""
    return bench.run(validate_every=5, controller={"gain": 0.1}, runtime={"micro_batch": 2})


@pytest.fixture(scope="module")
def whole(bench, ranked, run, warm):
    """The run of two ranks that nothing interrupts."""
    out = bench.folder / "whole"
    assert [code for code, _ in ranked(lambda: train(run, bench.data, out))] == [0, 0]
    return out


@pytest.fixture
def out(tmp_path):
    return tmp_path / "run"


def test_two_ranks_train_as_one_process_does(bench, forked, run, whole, out):
    assert forked(lambda: train(run, bench.data, out))[0] == 0
    final, final_2 = (torch.load(f / "final.pt", weights_only=True)["model"] for f in (out, whole))
    for name, value in final.items():
        assert torch.allclose(value, final_2[name], rtol=1e-4, atol=1e-6), name
    for line, line_2 in zip(bench.lines(out), bench.lines(whole), strict=True):
        for key, value in line.items():
            expected = pytest.approx(value, rel=1e-4) if isinstance(value, float | dict) else value
            assert line_2[key] == expected, key
    assert json.loads((whole / "manifest.json").read_text())["ranks"] == 2
    assert json.loads((whole / "training.json").read_text())["layout"] == [[0, 2, 2]]


@pytest.mark.parametrize("killed", [["0"], ["1"], ["1", "0"]])
def test_promise_1_kill_9_of_a_rank_and_resume(bench, ranked, run, whole, out, killed):
    """In step 6 or 8, of any rank; the other notices, and nothing more is written."""
    for at, rank in zip(("6", "4"), killed, strict=False):
        found = ranked(lambda: train(run, bench.data, out), SPY_AT=at, SPY_RANK=rank, **KILL)
        codes = {str(r): code for r, (code, _) in enumerate(found)}
        assert codes.pop(rank) == -signal.SIGKILL
        assert list(codes.values()) == [EXIT_RANK_LOST], found
        assert "lost another process" in found[1 - int(rank)][1]
        assert not (out / "final.pt").exists()
    (code, text), (code_1, text_1) = ranked(lambda: train(run, bench.data, out))
    assert (code, code_1, text_1) == (0, 0, "")
    assert "going on from step" in text
    bench.assert_same_run(whole, out, 12)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
@pytest.mark.parametrize("rank", ["0", "1"])
def test_promise_4_a_signal_to_any_rank_stops_all_after_the_same_step(
    bench, ranked, run, whole, out, number, rank
):
    spy = {"SPY_AT": "5", "SPY_RANK": rank, "SPY_DO": str(int(number))}
    found = ranked(lambda: train(run, bench.data, out), **spy)
    assert [code for code, _ in found] == [EXIT_REQUEUE] * 2
    assert f"{signal.Signals(number).name}: saved at step 5" in found[0][1]
    assert found[1][1] == ""
    assert checkpoint.saved_steps(out / "checkpoints") == [4, 5]
    assert [code for code, _ in ranked(lambda: train(run, bench.data, out))] == [0, 0]
    bench.assert_same_run(whole, out, 12)


@pytest.mark.parametrize("place", ["validation", "checkpoint"])
def test_promise_4_a_signal_to_rank_1_while_others_validate_or_write(
    bench, ranked, run, whole, out, place
):
    """Rank 0 is in the middle of it; both leave after a step, and the run is the same."""
    real_validate, real_save = loop.validate, checkpoint.save

    def validate(trainer, *rest):
        if os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGUSR1)
        return real_validate(trainer, *rest)

    def save(folder, step, *rest):
        os.kill(os.getpid(), signal.SIGUSR1)  # rank 0's own
        return real_save(folder, step, *rest)

    def interrupted() -> int:
        if place == "validation":
            loop.validate = validate
        else:
            checkpoint.save = save
        return train(run, bench.data, out)

    found = ranked(interrupted)
    assert [code for code, _ in found] == [EXIT_REQUEUE] * 2, found
    # validation comes after step 5; a checkpoint after step 2, and the signal is seen after 3
    assert checkpoint.saved_steps(out / "checkpoints")[-1] == (5 if place == "validation" else 3)
    assert [code for code, _ in ranked(lambda: train(run, bench.data, out))] == [0, 0]
    bench.assert_same_run(whole, out, 12)


def test_promise_5_a_gradient_that_turns_nan_on_one_rank_stops_both(bench, ranked, run, out):
    spy = {"SPY_AT": "7", "SPY_RANK": "1", "SPY_DO": "nan"}
    (code, text), (code_1, text_1) = ranked(lambda: train(run, bench.data, out), **spy)
    assert (code, code_1) == (EXIT_NOT_FINITE, EXIT_NOT_FINITE) and text_1 == ""
    failed = json.loads((out / "failed.json").read_text())
    assert failed["step"] == 7 and failed["parameters"] == ["estimator.policy.weight"]
    assert len(failed["documents"]) == 4  # of both ranks
    assert checkpoint.saved_steps(out / "checkpoints") == [4, 6]


def test_a_full_disk_stops_both_and_keeps_the_old_checkpoint(bench, ranked, run, whole, out):

    def full() -> int:
        real = checkpoint.write_whole

        def write(path: Path, data) -> None:
            if path.name == "step_00000008.pt":
                files.os.fsync = no_space
            real(path, data)

        def no_space(descriptor: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        checkpoint.write_whole = write
        return train(run, bench.data, out)

    (code, text), (code_1, text_1) = ranked(full)
    assert (code, code_1, text_1) == (EXIT_USER, EXIT_USER, "")
    assert "No space left" in text and "Newest checkpoint kept: step 6" in text
    assert [code for code, _ in ranked(lambda: train(run, bench.data, out))] == [0, 0]
    bench.assert_same_run(whole, out, 12)


def test_K31_two_ranks_are_refused_by_a_lock_with_one_message(bench, ranked, run, out):
    out.mkdir()
    with run_lock(out):
        (code, text), (code_1, text_1) = ranked(lambda: train(run, bench.data, out))
    assert (code, code_1, text_1) == (EXIT_LOCKED, EXIT_LOCKED, "")
    assert f"pid {os.getpid()} on" in text


def test_a_fault_of_every_rank_is_said_once(bench, ranked, run, out):
    found = ranked(lambda: train(run, bench.folder / "nowhere", out))
    assert [code for code, _ in found] == [EXIT_USER] * 2
    assert "nowhere/manifest.json" in found[0][1] and found[1][1] == ""


def test_resume_on_another_number_of_ranks_says_what_changed(bench, forked, ranked, out):
    run = bench.run()
    spy = {"SPY_AT": "7", "SPY_RANK": "1", **KILL}
    assert ranked(lambda: train(run, bench.data, out), **spy)[0][0] == EXIT_RANK_LOST
    code, text = forked(lambda: train(run, bench.data, out))
    assert code == 0
    assert "2 ranks with micro-batches of 2 rows up to step 6, from here 1 with 4" in text
    assert "averages over other rows" in text
    assert json.loads((out / "training.json").read_text())["layout"] == [[0, 2, 2], [6, 1, 4]]
    assert [line["step"] for line in bench.lines(out, "train")] == list(range(1, 13))
    other = bench.run(runtime={"micro_batch": 2})
    assert forked(lambda: train(other, bench.data, out.parent / "b"), SPY_AT="7", **KILL)[0] < 0
    (code, text), _ = ranked(lambda: train(other, bench.data, out.parent / "b"))
    assert code == 0 and "from here 2 with 2" in text and "other rows" not in text


def test_peak_memory_is_that_of_the_rank_that_needs_most(bench, ranked, run, out):
    def work() -> int:
        if os.environ["RANK"] == "1":
            usage = SimpleNamespace(ru_maxrss=10**9)
            loop.resource = SimpleNamespace(getrusage=lambda who: usage, RUSAGE_SELF=0)
        return train(run, bench.data, out)

    assert [code for code, _ in ranked(work)] == [0, 0]
    assert json.loads((out / "training.json").read_text())["peak_memory_bytes"] == 1024 * 10**9


def test_ranks_that_hold_other_weights_are_noticed(bench, ranked, run, out):
    def drifted() -> int:
        real = Trainer.restore

        def restore(self, state):
            real(self, state)
            if self.ranks.rank == 1:
                self.model.head.weight.data[0, 0] += 1e-3

        Trainer.restore = restore
        return train(run, bench.data, out)

    ranked(lambda: train(run, bench.data, out), SPY_AT="4", SPY_RANK="0", **KILL)
    (code, text), (code_1, _) = ranked(drifted)
    assert (code, code_1) == (EXIT_USER, EXIT_USER)
    assert "ranks [1] hold other weights" in text


@pytest.fixture
def command(bench, run, out):
    """`rltok train --ranks 2` in a forked process, with real torchrun workers."""
    config = out.parent / "run.yaml"
    write_run(run, config)
    words = ["--config", str(config), "--data", str(bench.data), "--out", str(out), "--ranks", "2"]
    root = str(Path(__file__).parents[2])
    return lambda: cli.main(words), {"PYTHONPATH": root, "OMP_NUM_THREADS": "1"}


def test_the_launcher_passes_signals_on_and_codes_back(bench, forked, command, whole, out):
    """SIGUSR1 to the launcher from within step 5; the same command then finishes the run."""
    start, environment = command
    spy = {"SPY_AT": "5", "SPY_LAUNCHER": "1", "SPY_DO": str(int(signal.SIGUSR1))}
    code, text = forked(start, **environment, **spy)
    assert code == EXIT_REQUEUE, text
    assert "SIGUSR1: saved at step" in text and "Traceback" not in text
    code, text = forked(start, **environment)
    assert code == 0 and "going on from step" in text, text
    bench.assert_same_run(whole, out, 12)


@pytest.mark.slow
def test_a_killed_rank_and_a_killed_launcher(bench, forked, command, whole, out):
    """The first: code 5 and the rank named. The second: the ranks notice, save and leave."""
    start, environment = command
    spy = {"SPY_AT": "5", "SPY_RANK": "1", **KILL}
    code, text = forked(start, **environment, **spy)
    assert code == EXIT_RANK_LOST and "rank 1 died of signal 9" in text, text
    assert checkpoint.saved_steps(out / "checkpoints") == [2, 4]
    spy = {"SPY_AT": "2", "SPY_LAUNCHER": "1", "SPY_DO": str(int(signal.SIGKILL))}
    code, text = forked(start, **environment, **spy)  # waits until the ranks have closed stderr
    assert code == -signal.SIGKILL
    assert "SIGTERM: saved at step 6" in text, text
    assert forked(start, **environment)[0] == 0
    bench.assert_same_run(whole, out, 12)


def test_nodes_of_a_slurm_step_meet_on_its_first_node(monkeypatch, tmp_path):
    assert slurm_nodes({"SLURM_JOB_ID": "7", "SLURM_NNODES": "2"}) == Nodes()
    scontrol = tmp_path / "scontrol"
    scontrol.write_text('#!/bin/sh\n[ "$*" = "show hostnames n[1-2]" ] && printf "n1\\nn2\\n"\n')
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    step = {"SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NUM_TASKS": "2"}
    step |= {"SLURM_STEP_NODELIST": "n[1-2]", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "3"}
    assert slurm_nodes(step) == Nodes(2, "n1:20710", "7.3")
    with pytest.raises(UserError, match="4 tasks on 2 nodes.*--ntasks-per-node=1"):
        slurm_nodes(step | {"SLURM_STEP_NUM_TASKS": "4"})
    with pytest.raises(UserError, match="3 ranks can't be shared out evenly over 2 nodes"):
        launch([], 3, slurm_nodes(step))


def test_ranks_wanted():
    cuda = RuntimeConfig(device="cuda", gpus=4)
    assert ranks_wanted(None, RuntimeConfig()) == ranks_wanted(None, RuntimeConfig(gpus=4)) == 1
    assert ranks_wanted(None, cuda) == 4 and ranks_wanted(2, cuda) == 2
    with pytest.raises(UserError, match="--ranks must be at least 1"):
        ranks_wanted(0, cuda)
