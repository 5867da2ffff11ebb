"""metrics.jsonl across resumes and full disks; running sums; the watch on the boundary rate."""

import errno
import json

import pytest
import torch

from rltok_core.errors import UserError
from rltok_core.training.metrics import MetricLog
from rltok_core.training.watch import COLLAPSE_STEPS, RateWatch, Tally


def steps(path) -> list[int]:
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


def test_resume_drops_later_lines_and_a_torn_one(tmp_path):
    path = tmp_path / "metrics.jsonl"
    log = MetricLog(path, 0)
    for step in range(1, 8):
        log.append({"step": step})
    log.close()
    with open(path, "a") as file:
        file.write('{"step": 3')  # the process died in the middle of a line
    log = MetricLog(path, 5)
    assert steps(path) == [1, 2, 3, 4, 5]
    log.append({"step": 6})
    assert steps(path) == [1, 2, 3, 4, 5, 6]  # flushed: there before the file is closed
    log.close()


def test_lines_are_strict_json(tmp_path):
    log = MetricLog(tmp_path / "metrics.jsonl", 0)
    with pytest.raises(ValueError):
        log.append({"step": 1, "loss": float("nan")})
    log.close()
    assert (tmp_path / "metrics.jsonl").read_text() == ""


def test_a_damaged_line_is_named(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n\0\0\0\n{"step": 3}\n')
    with pytest.raises(UserError, match=r"metrics.jsonl: line 2 is damaged"):
        MetricLog(path, 3)
    assert path.read_text().count("step") == 2  # nothing was thrown away


def test_full_disk_is_a_clear_error(tmp_path, monkeypatch):
    log = MetricLog(tmp_path / "metrics.jsonl", 0)

    class Full:
        def write(self, text):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(log, "_file", Full())
    with pytest.raises(UserError, match=r"metrics.jsonl: not written, No space left"):
        log.append({"step": 1})


def test_tally_gives_means_over_steps_and_bits_over_bytes():
    tally = Tally()
    for nats, n_bytes, loss in ((8.0, 4, 2.0), (1.0, 6, 4.0)):
        tally.add(steps=1, loss=torch.tensor(loss), nats=torch.tensor(nats), nats_early=nats)
        tally.add(bytes=n_bytes, boundaries=torch.tensor(2), positions=n_bytes + 1)
        tally.add(marked=1, whitespace=torch.tensor(2), **{"term policy": torch.tensor(-loss)})
    line = tally.line()
    assert line.pop("bpb") == pytest.approx(9 / 0.6931471805599453 / 10)
    assert line.pop("bpb_early") == pytest.approx(9 / 0.6931471805599453 / 10)
    assert line.pop("boundary_rate") == 4 / 12
    expected = {"loss": 3.0, "whitespace_share": 0.5, "terms": {"policy": -3.0}}
    assert line == expected
    tally.add(whitespace=-4)
    assert tally.line()["whitespace_share"] is None


@pytest.mark.parametrize("realised, flagged", [(0.049, 1), (0.051, 0), (0.79, 0), (0.81, 1)])
def test_rate_is_judged_over_a_full_window_alone(realised, flagged):
    """Target 0.2: out of bounds below 0.05 and above 0.8."""
    watch = RateWatch(1000, "cpu")
    for step in range(COLLAPSE_STEPS):
        assert watch.collapsed(step) is None
        watch.add(step, torch.tensor(realised), 0.2)
    found = watch.collapsed(COLLAPSE_STEPS)
    assert found == pytest.approx(realised / 0.2) if flagged else found is None


def test_a_rate_that_recovers_leaves_the_window():
    watch = RateWatch(1000, "cpu")
    for step in range(200):
        watch.add(step, torch.tensor(0.0 if step < 60 else 0.2), 0.2)
        if step == 59:
            assert watch.collapsed(60) == 0.0
    assert watch.collapsed(200) is None
