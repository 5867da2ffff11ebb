"""`rltok segment`: tokens of a text of one's own, in the terminal and as a page."""

import io
import json
import re
import sys
from types import SimpleNamespace

import pytest

from rltok_core.cli import main
from rltok_core.evaluation.compression import evaluation_bits
from rltok_core.evaluation.subject import load_trained
from rltok_core.report.explorer import Strip
from rltok_core.report.glyphs import glyphs
from rltok_core.segment import BETWEEN, printed, segment, tokens

WHITESPACE = "rltok_core.boundaries.whitespace:Whitespace"
TEXT = b"to be or not to be, that is the question: whether"


@pytest.fixture
def folder(make_run, write_data, finish_run):
    run = make_run(WHITESPACE, seq_len=65)
    return finish_run(run, write_data(run, [b"some held-out text"]))


def test_boundaries_and_bits_are_evaluations(folder, tmp_path):
    subject = load_trained(folder)
    strip = segment(subject, tmp_path, tmp_path, TEXT)
    # the rule: a boundary on the byte after whitespace; the last byte's is forced
    expected = [int(TEXT[i - 1 : i] == b" ") for i in range(len(TEXT))]
    expected[-1] = 1
    assert strip.boundary == expected
    assert sum(strip.bits) == pytest.approx(evaluation_bits(subject, None, TEXT), rel=1e-6)
    found = tokens(TEXT, strip.boundary)
    assert found[:3] == ["to\u2423", "be\u2423", "or\u2423"]
    assert "".join(found) == "".join(glyphs(TEXT))


def test_tokens_begin_at_boundaries_and_bytes_before_the_first_are_one_too():
    assert tokens(b"abcde", [0, 0, 1, 0, 1]) == ["ab", "cd", "e"]
    assert tokens(b"abc", [1, 1, 1]) == ["a", "b", "c"]
    strip = Strip("x", "X", 0, [0.5] * 3, [0, 1, 0], [1.0, 2.0, 3.0])
    head, line = printed(b"abc", strip, colour=False).split("\n")
    assert head == "X: 2 tokens, 1.50 bytes each, 2.000 bits per byte"
    assert line.strip() == f"a{BETWEEN}bc"
    assert "\033[" in printed(b"abc", strip, colour=True)


def test_command_prints_and_writes_a_page(folder, tmp_path, capsys):
    page = tmp_path / "deep" / "page.html"
    nasty = "a </script> b"
    assert main(["segment", "--run", str(folder), nasty, "--html", str(page)]) == 0
    assert f"a\u2423{BETWEEN}</script>\u2423{BETWEEN}" in capsys.readouterr().out
    text = page.read_text(encoding="utf-8")
    data = json.loads(re.search(r'id="explorer-data">(.*?)</script>', text, re.S)[1])
    assert "".join(data["texts"][0]["signs"]) == nasty.replace(" ", "\u2423")
    assert len(data["texts"][0]["strips"]) == len(data["ticked"]) == 1


def test_standard_input_may_be_any_bytes(folder, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"a \xff\x00")))
    assert main(["segment", "--run", str(folder), "-"]) == 0
    assert f"a\u2423{BETWEEN}ff{BETWEEN}00" in capsys.readouterr().out


def test_no_text_is_an_error(folder, capsys):
    assert main(["segment", "--run", str(folder), ""]) == 2
    assert "empty" in capsys.readouterr().err
