"""Both boundary scans, the host's and Triton's (through its interpreter), against Python loops."""

import importlib.util
from pathlib import Path

import pytest
import torch

from rltok_core.bench.reference import reference
from rltok_core.boundaries import sampling
from rltok_core.config.schema import RuntimeConfig
from rltok_core.errors import UserError
from rltok_core.model import kernels


@pytest.fixture
def triton_sample(monkeypatch):
    """The Triton kernel, run by the interpreter on the CPU, in a copy of its module of its own:
    whether a kernel is interpreted is settled when its file is read."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    path = Path(sampling.__file__).with_name("sampling_triton.py")
    spec = importlib.util.spec_from_file_location("interpreted_sampling", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.sample


def _case(rows, positions, width, seed, scale=2.0):
    generator = torch.Generator().manual_seed(seed)
    v_BSw = torch.randn(rows, positions, width, generator=generator) * scale
    u_BS = torch.rand(rows, positions, generator=generator)
    length_B = torch.randint(1, positions + 1, (rows,), generator=generator)
    length_B[0] = positions
    forced_BS = torch.rand(rows, positions, generator=generator) < 0.05
    return v_BSw, u_BS, forced_BS, length_B


def _expected(v_BSw, u_BS, forced_BS, length_B, prior, cap):
    a_BS = torch.zeros_like(forced_BS)
    for row, length in enumerate(length_B.tolist()):
        given = (x[row, :length].tolist() for x in (v_BSw.double(), u_BS.double(), forced_BS))
        v_Sw, u_S, forced_S = given
        sample_row = reference("sampling").sample_row
        a_BS[row, :length] = torch.tensor(sample_row(v_Sw, u_S, prior, cap, forced_S))
    return a_BS


@pytest.mark.parametrize("width", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("cap", [0.0, 6.0])
def test_both_scans_equal_a_float64_loop(width, cap, triton_sample):
    given = _case(4, 60, width, seed=width)
    expected_BS = _expected(*given, -1.25, cap)
    # earlier boundaries mattered, and both outcomes occur
    assert 0.05 < expected_BS.float().mean() < 0.6
    for sample in (sampling.sample_boundaries, triton_sample):
        a_BS = sample(*given, torch.tensor(-1.25), cap)
        assert a_BS.dtype == torch.bool
        assert torch.equal(a_BS, expected_BS)


def test_triton_scan_forgets_what_is_older_than_its_window(triton_sample):
    # v says: a boundary exactly where there was one w - 1 = 2 positions ago
    v_BSw = torch.zeros(1, 12, 3)
    v_BSw[..., 1], v_BSw[..., 2] = 40.0, -20.0
    forced_BS = torch.zeros(1, 12, dtype=torch.bool)
    forced_BS[0, 1] = True
    given = (v_BSw, torch.full((1, 12), 0.5), forced_BS, torch.tensor([11]), torch.tensor(0.0))
    a_BS = triton_sample(*given, 0.0)
    assert a_BS[0].nonzero().flatten().tolist() == [1, 3, 5, 7, 9]


def test_extreme_logits_are_certain_in_both(triton_sample):
    v_BSw = torch.tensor([200.0, -200.0, 1e4, -1e4])[None, :, None].repeat(1, 1, 2)
    v_BSw[..., 0] = 0
    u_BS, none = torch.tensor([[0.999, 1e-6, 0.999, 1e-6]]), torch.zeros(1, 4, dtype=torch.bool)
    for cap in (0.0, 30.0):
        for sample in (sampling.sample_boundaries, triton_sample):
            a_BS = sample(v_BSw, u_BS, none, torch.tensor([4]), torch.tensor(0.0), cap)
            assert a_BS.tolist() == [[True, False, True, False]], (cap, sample)


def test_the_batched_reference_equals_the_plain_one():
    v_BSw, u_BS, forced_BS, _ = _case(3, 40, 4, seed=9)
    expected_BS = _expected(v_BSw, u_BS, forced_BS, torch.full((3,), 40), -1.0, 6.0)
    a_BS = reference("sampling").sample(v_BSw, u_BS, -1.0, 6.0, forced_BS)
    assert torch.equal(a_BS, expected_BS)


def test_triton_asked_for_on_the_cpu_is_an_error_not_the_scan():
    kernels.use(RuntimeConfig(kernels={"sampling": "triton"}))
    try:
        with pytest.raises(UserError, match="sampling: triton .* run on CUDA"):
            sampling.sample_boundaries(*_case(1, 8, 2, seed=0), torch.tensor(0.0), 6.0)
    finally:
        kernels.use(RuntimeConfig())
