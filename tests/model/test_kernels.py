"""What is picked when, what is forced, and that a run's manifest says it."""

import pytest
import torch
from pydantic import ValidationError

from rltok_core.config.schema import KernelsConfig, RuntimeConfig
from rltok_core.errors import UserError
from rltok_core.model import attention, kernels
from rltok_core.model.kernels import Case, choose, pick

F32, BF16, F64 = torch.float32, torch.bfloat16, torch.float64


@pytest.fixture(autouse=True)
def as_before():
    yield
    kernels.use(RuntimeConfig())


@pytest.mark.parametrize(
    ("kind", "case", "name"),
    [
        ("byte_attention", Case("cpu", F32, 16, 50.0, 32), "loops"),
        ("byte_attention", Case("cpu", F32, 17, 50.0, 32), "blocks"),
        ("byte_attention", Case("cpu", F32, 8, 90.0, 32), "blocks"),
        ("byte_attention", Case("cpu", BF16, 8, 50.0, 32), "blocks"),
        ("byte_attention", Case("cuda", BF16, 64, 50.0, 64), "flex"),
        ("byte_attention", Case("cuda", F32, 8, 50.0, 64), "flex"),
        ("byte_attention", Case("cuda", F64, 64, 50.0, 64), "blocks"),
        ("byte_attention", Case("cuda", BF16, 64, 50.0, 8), "blocks"),
        ("token_attention", Case("cpu", F32, 0, 50.0, 32), "loops"),
        ("token_attention", Case("cpu", F64, 0, 50.0, 32), "dense"),
        ("token_attention", Case("cuda", BF16, 0, 50.0, 64), "packed"),
        ("elementwise", Case("cpu", F32), "loops"),
        ("elementwise", Case("cpu", F64), "torch"),
        ("elementwise", Case("cuda", F32), "torch"),
        ("sampling", Case("cpu", F32), "scan"),
        ("sampling", Case("cuda", F32), "triton"),
    ],
)
def test_what_is_picked_when(kind, case, name):
    assert pick(kind, case) == name


def test_the_reason_names_what_was_passed_over():
    name, why = choose("byte_attention", Case("cuda", F64, 64, 50.0, 64))
    assert name == "blocks"
    assert "not loops: loops take float32 on the CPU" in why
    assert "not flex: FlexAttention has no kernel for torch.float64" in why


def test_triton_missing_is_said(monkeypatch):
    monkeypatch.setattr(kernels.importlib.util, "find_spec", lambda name: None)
    assert choose("sampling", Case("cuda", F32)) == ("scan", "not triton: triton is not installed")


def test_a_forced_kernel_is_taken_or_refused_never_replaced():
    kernels.use(RuntimeConfig(kernels={"byte_attention": "blocks", "elementwise": "loops"}))
    assert choose("byte_attention", Case("cpu", F32, 8, 50.0, 32))[0] == "blocks"
    assert pick("token_attention", Case("cpu", F32, 0, 50.0, 32)) == "loops"
    with pytest.raises(UserError, match="runtime.kernels.elementwise: loops is not possible"):
        pick("elementwise", Case("cuda", F32))


def test_a_wrong_name_is_refused_with_the_valid_ones():
    with pytest.raises(ValidationError, match="'auto', 'loops', 'blocks' or 'flex'"):
        RuntimeConfig(kernels={"byte_attention": "varlen"})


def test_every_name_of_the_schema_is_a_way_and_the_other_way_round():
    for kind, ways in kernels._WAYS.items():
        names = KernelsConfig.model_fields[kind].annotation.__args__
        assert set(names) == {"auto", *ways}
    assert set(KernelsConfig.model_fields) == set(kernels._WAYS)


def test_torch_compile_puts_the_loops_aside():
    kernels.use(RuntimeConfig(compile=True))
    assert pick("byte_attention", Case("cpu", F32, 8, 50.0, 32)) == "blocks"
    assert pick("elementwise", Case("cpu", F32)) == "torch"


def test_report_has_a_line_a_kind():
    report = kernels.kernel_report("cpu", F32, 64, 50.0, 64)
    assert set(report) == set(kernels._WAYS)
    assert report["byte_attention"].startswith("blocks (not loops: blocks are faster beyond")


@pytest.mark.parametrize("forced", ["loops", "blocks"])
def test_forced_kernels_are_the_ones_that_run(forced, monkeypatch):
    ran = []
    monkeypatch.setattr(
        attention.CompiledLocalAttention, "apply", lambda qkv, *_: ran.append("loops") or qkv
    )
    monkeypatch.setattr(
        attention, "_softcap_softmax", lambda score, *_: ran.append("blocks") or score
    )
    kernels.use(RuntimeConfig(kernels={"byte_attention": forced}))
    table = attention.rope_table(20, 4, 10_000.0, torch.device("cpu"))
    attention.local_attention(torch.randn(1, 20, 24), table, 2, 4, 50.0)
    assert ran == [forced]
