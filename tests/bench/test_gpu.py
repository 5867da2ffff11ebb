"""The GPU script's code paths, tiny and on the CPU; its figures need a GPU."""

import json
import math

import pytest
import torch

from rltok_core.bench import gpu


@pytest.mark.parametrize("check", [gpu._scans, gpu._attention, gpu._whole_model])
def test_the_checks_pass_with_the_cpus_kernels(check):
    for one in check(gpu.TINY, "cpu"):
        assert one["error"] <= one["tolerance"], one


def test_a_wrong_kernel_fails_its_check(monkeypatch):
    monkeypatch.setattr(gpu, "sample_boundaries", lambda v, u, *_: u < torch.rand(u.shape))
    assert any(one["error"] > one["tolerance"] for one in gpu._scans(gpu.TINY, "cpu"))


def test_throughput_and_parts_are_strict_json():
    peak = gpu.peak_flops(gpu.TINY, "cpu")
    one = gpu.throughput("tiny", 2, gpu.TINY, "cpu", peak, compiled=False)
    assert math.isclose(one["share_of_peak"], one["flops_per_second"] / peak)
    assert one["bytes_per_second"] == 2 * 127 / one["seconds"][0]
    seconds = gpu.parts("tiny", 2, gpu.TINY, "cpu")
    assert all(value > 0 for value in seconds.values())
    json.dumps([one, seconds], allow_nan=False)


def test_the_micro_batch_doubles_until_memory_is_out(monkeypatch):
    tried = []

    def step(model, batch, precision):
        tried.append(len(batch.ids_BS))
        if tried[-1] > 2:
            raise torch.cuda.OutOfMemoryError("full")
        return lambda: None

    monkeypatch.setattr(gpu, "Step", step)
    plan = gpu.Plan(("tiny",), 64, first_rows=1, most_rows=8)
    assert gpu._largest("tiny", plan, "cpu") == 2
    assert tried == [1, 2, 4]


def test_what_fails_or_has_no_time_left_is_listed(monkeypatch, capsys):
    def broken(plan, device):
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(gpu, "_attention", broken)
    plan = gpu.Plan(("tiny",), 64, 64, 2, 32, 1, 1, 1, seconds=0.5, precision="float32")
    result = gpu.bench(plan, lambda line: None, "cpu")
    assert any("no such kernel" in line for line in result["not_measured"])
    assert any("micro-batch: not measured" in line for line in result["not_measured"])
    assert "no such kernel" in capsys.readouterr().out
    json.dumps(result, allow_nan=False)
