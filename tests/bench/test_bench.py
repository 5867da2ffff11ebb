"""`rltok bench`: its comparisons at tiny sizes, its errors, and the references themselves."""

import json

import pytest
import torch

from rltok_core.bench import cpu
from rltok_core.bench.measure import Comparison, in_turns
from rltok_core.bench.reference import reference
from rltok_core.bench.table import comparison_table, duration
from rltok_core.boundaries.contract import distribute, select
from rltok_core.cli import main
from rltok_core.errors import UserError
from rltok_core.model.attention import rope_table
from rltok_core.model.layers import DecoderLayer


@pytest.mark.parametrize("case", sorted(cpu.CASES))
def test_every_case_runs_and_both_sides_agree(case):
    # ours and the reference must agree, or the case itself raises
    for one in cpu.CASES[case](cpu.TINY):
        record = one.record()
        assert record["ratio"] > 0 and record["median_seconds"] > 0


def test_the_command_prints_and_writes(tmp_path, capsys):
    out = tmp_path / "bench.json"
    assert main(["bench", "--tiny", "--only", "pooling", "--threads", "1", "--out", str(out)]) == 0
    assert "| select and distribute |" in capsys.readouterr().out
    written = json.loads(out.read_text())
    assert written["tiny"] and written["machine"]["threads"] == 1
    assert written["comparisons"][0]["ours"] == "gather"


def test_no_gpu_and_a_wrong_case_are_said(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["bench", "--device", "cuda"]) != 0
    assert "no GPU here" in capsys.readouterr().err
    assert main(["bench", "--only", "poling"]) != 0
    assert "'poling'; one of sampling, byte_layer" in capsys.readouterr().err


def test_a_copy_without_its_checkout_says_so(tmp_path):
    with pytest.raises(UserError, match="install from a checkout"):
        reference("attention", tmp_path)


def test_a_comparison_reports_medians_ratio_and_goal():
    one = Comparison("a", "b", "c", "d", [1.0, 5.0, 2.0], [8.0, 1.0, 9.0], 5.0)
    record = one.record()
    assert record["ratio"] == 4.0 and record["met"] is False
    assert "5: MISSED" in comparison_table([one])
    assert duration(0.00123) == "1.23 ms"


def test_in_turns_takes_them_in_turns():
    calls = []
    in_turns(lambda: calls.append(0), lambda: calls.append(1), 2, "cpu", warm_up=(2, 0))
    assert calls == [0, 0, 0, 1, 0, 1]


def test_one_hot_references_equal_gathering():
    generator = torch.Generator().manual_seed(0)
    x_BSD = torch.randn(3, 20, 4, generator=generator)
    boundary_BS = torch.rand(3, 20, generator=generator) < 0.3
    boundary_BS[:, 0] = True
    tokens = select(x_BSD, boundary_BS)
    module = reference("pooling")
    torch.testing.assert_close(module.select(x_BSD, boundary_BS), tokens.x_BTD)
    spread_BSD = distribute(tokens.x_BTD, tokens.index_BS)
    torch.testing.assert_close(module.distribute(tokens.x_BTD, boundary_BS), spread_BSD)


@pytest.mark.parametrize("window", [None, 5])
def test_the_eager_gemma_layer_has_our_layers_weights(window):
    torch.manual_seed(0)
    layer = DecoderLayer(32, 2, 48, window)
    table = rope_table(30, 16, 10_000.0, torch.device("cpu"))
    table_BSd = table if window else table.expand(2, -1, -1)
    x_BSD = torch.randn(2, 30, 32)
    theirs = reference("gemma").GemmaLayer(layer)
    expected_BSD = layer(x_BSD, table_BSd.contiguous())
    torch.testing.assert_close(theirs(x_BSD, table_BSd), expected_BSD, rtol=1e-4, atol=1e-5)
