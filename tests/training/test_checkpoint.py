"""Checkpoints on their own: order, damage, full disk, other configurations."""

import errno
import os
import resource
from pathlib import Path

import pytest
import torch

from rltok_core import files
from rltok_core.errors import EXIT_USER, UserError
from rltok_core.training import checkpoint


def state(run, step: int) -> dict:
    config = run.model_dump(mode="json")
    identity = {"config": config, "run_hash": run.hash, "data_hash": "data"}
    return {**identity, "step": step, "weight": torch.full((100,), float(step))}


@pytest.fixture
def saved(bench, tmp_path):
    """A folder with the checkpoints of steps 4 and 6 (2 is over the limit and gone)."""
    run, folder = bench.run(), tmp_path / "checkpoints"
    for step in (2, 4, 6):
        checkpoint.save(folder, step, state(run, step), keep=2)
    return run, folder


def test_keeps_the_newest_and_leaves_nothing_else(saved):
    run, folder = saved
    assert checkpoint.saved_steps(folder) == [4, 6]
    names = {path.name for path in folder.iterdir()}
    assert names == {f"step_0000000{n}.{end}" for n in (4, 6) for end in ("pt", "sha256")}
    assert checkpoint.load_newest(folder, run, "data")["weight"][0] == 6


@pytest.mark.parametrize("damage", ["truncated", "one bit", "no checksum"])
def test_promise_3_damaged_newest_is_skipped_with_a_warning(saved, damage, capsys):
    run, folder = saved
    path = checkpoint.checkpoint_path(folder, 6)
    data = bytearray(path.read_bytes())
    if damage == "truncated":
        path.write_bytes(data[: len(data) // 2])
    elif damage == "one bit":
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    else:
        path.with_suffix(".sha256").unlink()
    assert checkpoint.load_newest(folder, run, "data")["step"] == 4
    warning = capsys.readouterr().err
    assert str(path) in warning and "damaged" in warning
    assert str(checkpoint.checkpoint_path(folder, 4)) in warning
    assert checkpoint.saved_steps(folder) == [4]  # the damaged one no longer counts as kept


def test_all_damaged_begins_again_and_says_so(saved, capsys):
    run, folder = saved
    for step in (4, 6):
        checkpoint.checkpoint_path(folder, step).write_bytes(b"")
    assert checkpoint.load_newest(folder, run, "data") is None
    assert "beginning at step 0" in capsys.readouterr().err


@pytest.mark.parametrize("when", ["write", "sync"])
def test_promise_11_full_disk_keeps_the_old_checkpoint_and_says_so(saved, monkeypatch, when):
    run, folder = saved
    full = OSError(errno.ENOSPC, "No space left on device")
    if when == "sync":

        def fsync(descriptor):
            # only once the checkpoint itself is being written, after its small checksum
            if os.fstat(descriptor).st_size > 100:
                raise full

        monkeypatch.setattr(files.os, "fsync", fsync)
    else:
        real = open

        class Full:
            def __init__(self, file):
                self.file = file

            def __enter__(self):
                return self

            def __exit__(self, *exception):
                self.file.close()

            def write(self, data):
                self.file.write(data[: len(data) // 2])
                raise full

        monkeypatch.setattr("builtins.open", lambda *a, **k: Full(real(*a, **k)))
    with pytest.raises(UserError) as error:
        checkpoint.save(folder, 8, state(run, 8), keep=2)
    monkeypatch.undo()
    assert error.value.code == EXIT_USER
    assert "No space left" in str(error.value) and "step 6" in str(error.value)
    assert checkpoint.saved_steps(folder) == [4, 6]
    assert not [path for path in folder.iterdir() if "tmp" in path.name or "8" in path.name]
    assert checkpoint.load_newest(folder, run, "data")["step"] == 6


def test_a_file_size_limit_of_the_system_keeps_the_old_checkpoint_and_says_so(saved, forked):
    """Nothing stands in for the disk here: the kernel itself refuses the write half way."""
    run, folder = saved
    big = state(run, 8) | {"weight": torch.zeros(50_000)}

    def limited() -> int:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        return checkpoint.save(folder, 8, big, keep=2) is None

    code, text = forked(limited)
    assert code == EXIT_USER
    assert "File too large" in text and "Newest checkpoint kept: step 6" in text
    assert {path.name for path in folder.iterdir()} == {
        f"step_0000000{n}.{end}" for n in (4, 6) for end in ("pt", "sha256")
    }
    assert checkpoint.load_newest(folder, run, "data")["step"] == 6


def test_another_error_than_a_full_disk_is_not_dressed_up_as_one(saved, monkeypatch):
    run, folder = saved

    def broken(descriptor):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(files.os, "fsync", broken)
    with pytest.raises(OSError, match="Input/output"):
        checkpoint.save(folder, 8, state(run, 8), keep=2)


def test_another_configuration_is_refused_with_the_keys_named(saved, bench):
    _, folder = saved
    other = bench.run(lr=0.5, seed=7)
    with pytest.raises(UserError) as error:
        checkpoint.load_newest(folder, other, "data")
    message = str(error.value)
    assert "training.lr 0.003 there, 0.5 now" in message
    assert "seed 0 there, 7 now" in message
    assert "batch_size" not in message and str(folder) in message


def test_runtime_may_change_but_the_data_may_not(saved, bench):
    _, folder = saved
    assert checkpoint.load_newest(folder, bench.run(runtime={"threads": 2}), "data")["step"] == 6
    with pytest.raises(UserError, match="other data"):
        checkpoint.load_newest(folder, bench.run(), "something else")


def test_write_whole_replaces_and_leaves_no_half(tmp_path: Path):
    path = tmp_path / "x.json"
    files.write_json(path, {"a": 1})
    with pytest.raises(ValueError):
        files.write_json(path, {"a": float("nan")})
    assert path.read_text() == '{\n "a": 1\n}\n'
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]
