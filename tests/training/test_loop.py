"""Promises 1 to 5 of the design and K09, K11, K29, K31 on a run of a few steps.

What kills or signals a process is the process's own estimator, at a known point of a known step:
a real signal, in a forked process, at no random time.
"""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from rltok_core import files
from rltok_core.boundaries.contract import Estimator
from rltok_core.config.experiment import write_run
from rltok_core.errors import EXIT_LOCKED, EXIT_NOT_FINITE, EXIT_REQUEUE, EXIT_USER, UserError
from rltok_core.training import checkpoint, loop
from rltok_core.training.inputs import open_windows
from rltok_core.training.lock import run_lock
from rltok_core.training.loop import train
from rltok_core.training.trainer import Trainer

pytestmark = pytest.mark.usefixtures("warm")

KILL = {"SPY_DO": str(int(signal.SIGKILL))}
UNIFORM = {"label": "uniform", "class": "rltok_core.boundaries.uniform:Uniform"}


@pytest.fixture
def k09(bench):
    return bench.run(
        steps=10, lr=1.0, warmup_steps=2, warmup_from=0.5, schedule="linear", validate_every=3
    )


def test_K09_ten_steps_are_five_a_kill_and_five(bench, forked, k09, capsys):
    whole, once, twice = (bench.folder / name for name in ("whole", "once", "twice"))
    assert train(k09, bench.data, whole) == 0
    rates = [line["lr"] for line in bench.lines(whole, "train")]
    assert rates == [0.5, 1, 1, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125]
    samples = [line["samples"] for line in bench.lines(whole, "train")]
    # 12 windows in batches of 4: three steps are one epoch, each window once
    assert all(sorted(sum(samples[i : i + 3], [])) == list(range(12)) for i in (0, 3, 6))

    for out, calls in ((once, ["6"]), (twice, ["4", "4"])):
        for call in calls:
            code, text = forked(lambda out=out: train(k09, bench.data, out), SPY_AT=call, **KILL)
            assert code == -signal.SIGKILL, text
            assert not (out / "final.pt").exists() and not (out / "training.json").exists()
        assert forked(lambda out=out: train(k09, bench.data, out))[0] == 0
        bench.assert_same_run(whole, out, 10)
        assert [line["step"] for line in bench.lines(out, "train")] == list(range(1, 11))
        assert [line["step"] for line in bench.lines(out, "validation")] == [3, 6, 9, 10]
    # killed in step 6 with a checkpoint every 2: from 4; twice: from 2 (killed in 4), then 4
    record = json.loads((once / "training.json").read_text())
    assert record["resumed_from"] == [4]
    assert json.loads((twice / "training.json").read_text())["resumed_from"] == [2, 4]
    final = bench.lines(whole, "validation")[-1]
    assert record["validation_bpb"] == final["bpb"] and record["bytes"] == final["bytes"]
    assert record["status"] == "complete" and record["run_hash"] == k09.hash

    before = (whole / "final.pt").read_bytes()
    capsys.readouterr()
    assert train(k09, bench.data, whole) == 0
    assert "complete already" in capsys.readouterr().err
    assert (whole / "final.pt").read_bytes() == before


def test_K29_killed_at_55_of_100_goes_on_from_50(bench, forked):
    out = bench.folder / "run"
    run = bench.run(steps=100, batch_size=1, seq_len=8, runtime={"checkpoint_every": 10})
    killed, text = forked(lambda: train(run, bench.data, out), SPY_AT="55", **KILL)
    assert killed == -signal.SIGKILL, text
    assert checkpoint.saved_steps(out / "checkpoints") == [40, 50]
    assert len(bench.lines(out)) == 54
    code, text = forked(lambda: train(run, bench.data, out))
    assert code == 0 and "going on from step 50 of 100" in text
    assert [line["step"] for line in bench.lines(out, "train")] == list(range(1, 101))
    assert json.loads((out / "training.json").read_text())["resumed_from"] == [50]


def test_promise_1_kill_9_of_the_command_itself(bench):
    """`rltok train` as a user starts it, killed without warning, then finished by hand."""
    run, whole, out = bench.run(), bench.folder / "whole", bench.folder / "run"
    config = bench.folder / "run.yaml"
    write_run(run, config)
    command = [sys.executable, "-m", "rltok_core", "train", "--config", str(config)]
    command += ["--data", str(bench.data), "--out", str(out)]
    environment = {"PATH": "", "OMP_NUM_THREADS": "1", "SPY_AT": "8", **KILL}
    root = Path(__file__).parents[2]
    killed = subprocess.run(command, cwd=root, env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert train(run, bench.data, out) == 0
    assert train(run, bench.data, whole) == 0
    bench.assert_same_run(whole, out, 12)


def test_promise_3_a_truncated_newest_checkpoint_costs_two_steps_and_nothing_else(
    bench, forked, capsys
):
    run, whole, out = bench.run(), bench.folder / "whole", bench.folder / "run"
    assert forked(lambda: train(run, bench.data, out), SPY_AT="7", **KILL)[0] < 0
    newest = checkpoint.checkpoint_path(out / "checkpoints", 6)
    newest.write_bytes(newest.read_bytes()[:1000])
    assert train(run, bench.data, out) == 0
    text = capsys.readouterr().err
    assert f"checkpoint {newest} is damaged" in text and "going on from step 4 of 12" in text
    assert train(run, bench.data, whole) == 0
    bench.assert_same_run(whole, out, 12)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_promise_4_a_signal_saves_and_leaves_to_be_requeued(bench, forked, number):
    """In step 5, between two checkpoints and two log lines: the step is finished and saved."""
    run, whole, out = (
        bench.run(runtime={"log_every": 3}),
        bench.folder / "whole",
        bench.folder / "run",
    )
    code, text = forked(lambda: train(run, bench.data, out), SPY_AT="5", SPY_DO=str(int(number)))
    assert code == EXIT_REQUEUE
    assert f"{signal.Signals(number).name}: saved at step 5" in text
    assert checkpoint.saved_steps(out / "checkpoints") == [4, 5]
    assert not (out / "final.pt").exists() and not (out / "training.json").exists()
    assert train(run, bench.data, out) == 0
    assert train(run, bench.data, whole) == 0
    bench.assert_same_run(whole, out, 12)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
@pytest.mark.parametrize("place", ["validation", "checkpoint"])
def test_promise_4_a_signal_in_validation_or_while_a_checkpoint_is_written(
    bench, forked, number, place
):
    """Validation comes after step 3, the first checkpoint after 2: its signal is seen a step on."""
    run, out = bench.run(validate_every=3), bench.folder / "run"

    def interrupted() -> int:
        module, name = (loop, "validate") if place == "validation" else (files, "sync_folder")
        real = getattr(module, name)

        def signalled(*given):
            if place == "validation" or given[0].name == "checkpoints":
                os.kill(os.getpid(), number)
            return real(*given)

        setattr(module, name, signalled)
        return train(run, bench.data, out)

    code, text = forked(interrupted)
    assert code == EXIT_REQUEUE
    assert f"{signal.Signals(number).name}: saved at step 3" in text
    assert checkpoint.saved_steps(out / "checkpoints") == [2, 3]
    assert train(run, bench.data, out) == 0
    assert train(run, bench.data, bench.folder / "whole") == 0
    bench.assert_same_run(bench.folder / "whole", out, 12)


def test_K11_a_gradient_that_turns_nan_stops_before_the_step(bench, forked):
    run, out = bench.run(runtime={"keep_checkpoints": 2}), bench.folder / "run"

    def broken() -> int:
        try:
            return train(run, bench.data, out)
        except UserError as error:
            print(error, file=sys.stderr)
            return error.code

    code, text = forked(broken, SPY_AT="7", SPY_DO="nan")
    assert code == EXIT_NOT_FINITE
    assert "step 7" in text and "estimator.policy.weight" in text and "train-" in text
    failed = json.loads((out / "failed.json").read_text())
    assert failed["status"] == "failed" and failed["step"] == 7
    assert failed["parameters"] == ["estimator.policy.weight"]
    assert set(failed["terms"]) == {"auto", "early", "policy", "target"}
    assert len(failed["documents"]) == 4 and failed["reason"] in text.replace("\n", "")
    assert checkpoint.saved_steps(out / "checkpoints") == [4, 6]
    state = checkpoint.load_newest(out / "checkpoints", run, "c0ffee" * 8)
    assert all(value.isfinite().all() for value in state["model"].values())
    assert state["progress"]["step"] == 6
    assert [line["step"] for line in bench.lines(out)] == [1, 2, 3, 4, 5, 6]
    assert not [path for path in out.rglob("*") if "final" in path.name or "best" in path.name]
    assert not (out / "training.json").exists()

    # the cause mended, the same command finishes, and the failure is no longer on record
    assert train(run, bench.data, out) == 0
    assert not (out / "failed.json").exists()


def test_promise_5_a_collapsed_rate_is_warned_of_once_and_recorded(bench, capsys):
    out = bench.folder / "run"
    # the two forced ends of a row are all there is, a few in a hundred
    (bench.folder / "rare.py").write_text(
        "import torch\n"
        "from rltok_core.boundaries.contract import Estimator, fixed_proposal\n\n\n"
        "class Rare(Estimator):\n"
        "    def propose(self, x_BSD, batch, target_rate):\n"
        "        return fixed_proposal(torch.zeros_like(batch.valid_BS), batch)\n"
    )
    rare = {"label": "rare", "class": f"{bench.folder / 'rare.py'}:Rare"}
    assert train(bench.run(estimator=rare, target_rate=0.6), bench.data, out) == 0
    assert capsys.readouterr().err.count("boundary rate has collapsed") == 1
    assert json.loads((out / "training.json").read_text())["rate_collapsed"] is True
    no_level = bench.run(estimator=rare, target_rate=0.6, model={"n_mid": 0})
    assert train(no_level, bench.data, bench.folder / "no_level") == 0
    assert "collapsed" not in capsys.readouterr().err


def test_K31_a_second_writer_is_refused_and_the_checkpoint_stays(bench, forked):
    run, out = bench.run(), bench.folder / "run"
    assert forked(lambda: train(run, bench.data, out), SPY_AT="7", **KILL)[0] < 0

    def second() -> int:
        try:
            return train(run, bench.data, out)
        except UserError as error:
            print(error, file=sys.stderr)
            return error.code

    before = (out / "metrics.jsonl").read_bytes()
    with run_lock(out):
        code, text = forked(second)
    assert code == EXIT_LOCKED and "pid " in text
    assert (out / "metrics.jsonl").read_bytes() == before
    state = checkpoint.load_newest(out / "checkpoints", run, "c0ffee" * 8)
    assert state["progress"]["step"] == 6


def test_a_disk_that_fills_up_costs_nothing_already_made(bench, monkeypatch):
    run, whole, out = bench.run(), bench.folder / "whole", bench.folder / "run"
    real = checkpoint.write_whole

    def full(path: Path, data) -> None:
        if path.name == "step_00000008.pt":
            monkeypatch.setattr(files.os, "fsync", no_space)
        real(path, data)

    def no_space(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "write_whole", full)
        with pytest.raises(UserError, match="No space left.*Newest checkpoint kept: step 6"):
            train(run, bench.data, out)
    monkeypatch.undo()
    assert checkpoint.saved_steps(out / "checkpoints") == [4, 6]
    assert not list((out / "checkpoints").glob(".*"))
    assert train(run, bench.data, out) == 0
    assert train(run, bench.data, whole) == 0
    bench.assert_same_run(whole, out, 12)


def test_another_configuration_in_the_folder_is_refused(bench):
    out = bench.folder / "run"
    assert train(bench.run(steps=3), bench.data, out) == 0
    with pytest.raises(UserError, match=r"training.lr 0.003 there, 0.004 now") as error:
        train(bench.run(steps=3, lr=4e-3), bench.data, out)
    assert error.value.code == EXIT_USER
    assert train(bench.run(steps=3, runtime={"log_every": 7}), bench.data, out) == 0


@pytest.mark.parametrize("micro_batch", [1, 3])
def test_accumulated_micro_batches_give_the_whole_batch_gradient(bench, micro_batch):
    """Rows of different lengths: the weights are target bytes, and keys belong to rows."""

    def gradient(micro: int) -> torch.Tensor:
        run = bench.run(estimator=UNIFORM, batch_size=8, runtime={"micro_batch": micro})
        trainer = Trainer(run, open_windows(run, Estimator, "train", bench.data, None))
        data = trainer.batches(0)
        assert len({int(n) for batch in data.batches for n in batch.length_B}) > 1
        sums, _ = trainer.gradient(data, 0.2)
        grads = [p.grad.flatten() for p in trainer.model.parameters() if p.grad is not None]
        return torch.cat(grads), sums

    (whole, sums), (parts, part_sums) = gradient(0), gradient(micro_batch)
    assert float((whole - parts).norm() / whole.norm()) < 1e-6
    for name in ("bytes", "boundaries", "positions", "marked", "whitespace"):
        assert float(sums[name]) == float(part_sums[name])
    assert float(sums["nats"]) == pytest.approx(float(part_sums["nats"]), rel=1e-6)


def test_curriculum_and_controller_move_rate_and_bias(bench):
    out = bench.folder / "run"
    run = bench.run(
        steps=10,
        curriculum={"open_until": 0.2, "start": 0.9, "end": 0.6},
        controller={"gain": 0.1, "limit": 8.0},
    )
    assert train(run, bench.data, out) == 0
    found = bench.lines(out, "train")
    fall = [1, 1, 0.9, 0.725, 0.55, 0.375, 0.2, 0.2, 0.2, 0.2]
    assert [line["target_rate"] for line in found] == pytest.approx(fall)
    assert [line["boundary_rate"] for line in found[:2]] == [1, 1]
    bias = sum(0.1 * (0.2 - line["boundary_rate"]) / 0.2 for line in found[6:])
    model = torch.load(out / "final.pt", weights_only=True)["model"]
    assert float(model["estimator.rate_bias"]) == pytest.approx(bias, rel=1e-5)


def test_bf16_keeps_master_weights_and_states_in_float32(bench):
    out = bench.folder / "run"
    assert train(bench.run(steps=3, precision="bf16"), bench.data, out) == 0
    path = checkpoint.checkpoint_path(out / "checkpoints", 3)
    state = torch.load(path, weights_only=True)
    values = dict(bench.leaves([state["model"], state["optimizer"]])).values()
    kinds = {value.dtype for value in values if torch.is_tensor(value)}
    assert kinds == {torch.float32}
    float_out = bench.folder / "float"
    assert train(bench.run(steps=3), bench.data, float_out) == 0
    loose, exact = (line["loss"] for line in (bench.lines(out)[0], bench.lines(float_out)[0]))
    assert loose != exact and loose == pytest.approx(exact, rel=0.02)


def test_parameter_groups_take_their_own_rates(bench):
    """With one step of AdamW every weight moves by its own learning rate (up to the decay)."""
    multiples = {"embedding": 4.0, "heads": 2.0, "policy": 10.0}
    run = bench.run(steps=1, warmup_steps=0, weight_decay=0.0, lr_multiples=multiples)
    trainer = Trainer(run, open_windows(run, Estimator, "train", bench.data, None))
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    trainer.step()
    groups = trainer.model.parameter_groups()
    names = {p: name for name, p in trainer.model.named_parameters()}
    for group, multiple in {**multiples, "layers": 1.0}.items():
        moved = [(p.detach() - before[names[p]]).abs().max() for p in groups[group]]
        assert float(max(moved)) == pytest.approx(3e-3 * multiple, rel=1e-3), group


def test_bad_input_is_one_clear_message(bench, tmp_path):
    out = bench.folder / "run"
    if not torch.cuda.is_available():
        with pytest.raises(UserError, match="sees no GPU"):
            train(bench.run(runtime={"device": "cuda"}), bench.data, out)
    with pytest.raises(UserError, match="nowhere/manifest.json"):
        train(bench.run(), tmp_path / "nowhere", out)
    oracle = {"label": "oracle", "class": "rltok_core.boundaries.oracle:Oracle"}
    with pytest.raises(UserError, match="truth.npy"):
        train(bench.run(estimator=oracle), bench.data, out)
    manifest = bench.data / "manifest.json"
    manifest.write_text(json.dumps({"hash": "other", "content_hash": "x"}))
    with pytest.raises(UserError, match="another data configuration"):
        train(bench.run(), bench.data, out)
    assert not out.exists()  # nothing was begun
