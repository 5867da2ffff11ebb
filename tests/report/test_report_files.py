"""The whole report through its command: every file, the same hashes twice, escaped bytes."""

import csv
import errno
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from matplotlib.colors import to_hex

from rltok_core import files
from rltok_core.cli import main
from rltok_core.config.experiment import read_experiment, write_matrix
from rltok_core.errors import UserError
from rltok_core.report import fonts
from rltok_core.report.cli import find_experiment
from rltok_core.report.fonts import font_for
from rltok_core.report.glyphs import glyphs
from rltok_core.report.heatmaps import PROBABILITY
from rltok_core.report.products import PRODUCTS
from rltok_core.report.style import KNOWN, method_styles
from rltok_core.report.writing import Written, write_contents


@pytest.fixture
def small(lab):
    lab.plan(
        [lab.block("planted", ["uniform", "my_new.method+"]), lab.block("prose", ["uniform"])],
        seeds=[0, 1],
        title="A <trial> & more",
    )
    for run in lab.runs[:-1]:
        lab.finish(run)
    lab.fail(lab.runs[-1], "loss is <nan>")
    return lab


def _hashes(folder):
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir()}


def test_K37_every_file_and_the_same_hashes_twice(small, capsys):
    command = ["report", "--experiment", str(small.file), "--out"]
    # a process of its own, with another hash seed: no order of a set may show
    second = subprocess.Popen(
        [sys.executable, "-m", "rltok_core", *command, str(small.home / "second")],
        env=os.environ | {"PYTHONHASHSEED": "5"}, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    assert main([*command, str(small.home / "first")]) == 0
    printed = capsys.readouterr().out
    assert second.wait(timeout=300) == 0
    first, second = _hashes(small.home / "first"), _hashes(small.home / "second")
    assert first == second
    figures = (
        "bpb_by_method difference_to_baseline gap_to_floor flops_bpb whitespace_over_training "
        "position token_lengths"
    )
    expected = {f"{name}.{kind}" for name in figures.split() for kind in ("png", "svg", "pdf")}
    expected |= {"main_table.csv", "main_table.md", "main_table.tex", "provenance.csv"}
    expected |= {"paired_differences.csv", "report.html", "contents.json"}
    assert expected <= set(first)
    assert {"heatmap_planted_tiny_1.png", "heatmap_prose_tiny_3.png"} <= set(first)
    for name in ("main_table.md", "flops_bpb.png", "report.html"):
        assert name in printed
    _check_pages(small)


def _check_pages(small):
    page = (small.home / "first" / "report.html").read_text(encoding="utf-8")
    assert "A &lt;trial&gt; &amp; more" in page
    assert "loss is &lt;nan&gt; at step 7" in page
    assert "5 of 6 planned runs are complete" in page
    # nothing is fetched from anywhere, and every picture is inside
    assert "http" not in re.sub(r"data:image/png;base64,[^\"]+", "", page)
    svg = (small.home / "first" / "flops_bpb.svg").read_text(encoding="utf-8")
    assert "<dc:date>" not in svg


def test_wrong_data_is_an_exit_code_and_no_report(small, capsys):
    run = small.runs[0]
    small.train(run, data_hash="other")
    small.evaluate(run, data_hash="other")
    out = small.home / "out"
    assert main(["report", "--experiment", str(small.file), "--out", str(out)]) == 2
    assert "different data" in capsys.readouterr().err
    assert not out.exists()


def test_a_bare_result_without_logs_still_gives_a_report(lab, capsys):
    (run,) = lab.plan([lab.block("prose", ["uniform"])])
    lab.finish(run)
    assert main(["report", "--experiment", str(lab.file)]) == 0
    (lab.home / "out" / "notes.txt").write_text("not the report's")
    shutil.rmtree(lab.results)
    lab.evaluate(run, token_lengths=None, positions=None, whitespace_share=None)
    (lab.results / "evaluations" / run.id / "heatmap.json").unlink()
    (lab.results / "evaluations" / run.id / "documents.csv").unlink()
    capsys.readouterr()
    assert main(["report", "--experiment", str(lab.file)]) == 0
    printed = capsys.readouterr().out
    assert "nothing to show: no run recorded a validation BPB" in printed
    # what the first report drew belongs to results that are gone; nothing else is touched
    left = {path.name for path in (lab.home / "out").iterdir()}
    assert not {"flops_bpb.svg", "heatmap_prose_tiny_1.png", "position.png"} & left
    assert {"notes.txt", "bpb_by_method.svg"} <= left


def test_a_line_of_the_log_without_whitespace_is_left_out(lab, capsys):
    """Where a script has little whitespace, there may be none between two lines of the log."""
    runs = lab.plan([lab.block("prose", ["uniform"])], seeds=[0, 1])
    for run in runs:
        lab.finish(run)
    path = lab.results / "runs" / runs[0].id / "metrics.jsonl"
    first, *others = path.read_text().splitlines(keepends=True)
    record = json.loads(first) | {"whitespace_share": None}
    path.write_text(json.dumps(record) + "\n" + "".join(others))
    name = "whitespace_over_training"
    assert main(["report", "--experiment", str(lab.file), "--only", name]) == 0
    assert f"{name}.png" in capsys.readouterr().out


def test_a_full_disk_is_said_and_leaves_what_was_there(small, capsys, monkeypatch):
    names = ("main_table", "bpb_by_method")
    arguments = ["report", "--experiment", str(small.file), "--only"]
    for name in names:
        assert main([*arguments, name]) == 0
    out = small.home / "out"
    before = {path.name: path.read_bytes() for path in out.iterdir()}

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    for name, first in zip(names, ("main_table.csv", "bpb_by_method.png"), strict=True):
        capsys.readouterr()
        assert main([*arguments, name]) == 2
        assert f"{first}: not written, No space left" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_a_list_of_contents_that_was_cut_is_made_anew(tmp_path):
    contents = tmp_path / "contents.json"
    contents.write_text('{"main_table": {"fi')
    write_contents([Written("main_table", "Every method")], tmp_path)
    assert list(json.loads(contents.read_text())) == ["main_table"]


def test_one_product_alone(small, capsys):
    command = ["figures", "--from", str(small.results), "--experiment", str(small.file), "--only"]
    out = ["--out", str(small.home / "one")]
    assert main([*command, "paired_differences", "gap_to_floor", *out]) == 0
    names = {path.stem for path in (small.home / "one").iterdir()}
    assert names == {"paired_differences", "gap_to_floor"}
    assert main([*command, "gap_to_flour", *out]) == 2
    assert "gap_to_flour" in capsys.readouterr().err
    assert main([*command, "main_table", *out, "--baseline", "hnet"]) == 2
    assert "has no such method" in capsys.readouterr().err


def test_another_baseline(small):
    command = ["report", "--experiment", str(small.file), "--only", "paired_differences"]
    out = small.home / "other"
    assert main([*command, "--baseline", "my_new.method+", "--out", str(out)]) == 0
    with (out / "paired_differences.csv").open(newline="") as file:
        (record,) = csv.DictReader(file)
    assert (record["estimator"], record["baseline"]) == ("uniform", "my_new.method+")


def test_from_finds_the_experiment_that_the_workflow_resolved(small, tmp_path):
    write_matrix(*read_experiment(small.file), small.results / "configs")
    found = small.results / "configs" / "experiments" / "trial.yaml"
    assert find_experiment(small.results) == (found, small.results)
    assert find_experiment(small.results / "trial") == (found, small.results)
    found.with_stem("another").write_text(found.read_text())
    with pytest.raises(UserError, match="which experiment.*another.*trial"):
        find_experiment(small.results)


def test_every_product_can_be_imported_and_asked_for():
    for name, product in PRODUCTS.items():
        assert name.isidentifier() and callable(product.function())


def test_one_visible_sign_a_byte():
    data = "né \n\t中\u0301".encode() + b"\x80\x00\xff\xe4\xb8"
    signs = glyphs(data)
    assert len(signs) == len(data)
    assert signs == [
        *("n", "é", "·", "\u2423", "\u21b5", "\u2192", "中", "·", "·", "◌\u0301", "·"),
        *("80", "00", "ff", "e4", "b8"),
    ]


def test_marks_stand_on_a_circle_and_spaces_of_any_width_are_seen():
    assert glyphs("\u05b8\u3000\u200b".encode()) == [
        *("\u25cc\u05b8", "\u00b7", "\u2423", "\u00b7", "\u00b7", "e2", "80", "8b")
    ]


@pytest.mark.parametrize("sign", ["a", "\u25af", "\u05d0", "\u25cc\u05b8", "中", "の"])
def test_pictures_draw_every_script_that_a_configuration_trains_on(sign):
    assert font_for(sign) is not None


def test_a_character_without_a_font_is_said_to_have_none(monkeypatch):
    assert font_for("\U00013000") is None  # a hieroglyph
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    fonts._files.cache_clear()
    assert font_for("中") is None and font_for("a") is not None
    fonts._files.cache_clear()


def test_text_is_dark_enough_on_every_fill():
    def luminance(color: str) -> float:
        # WCAG 2.1's relative luminance
        parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        parts = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), parts, strict=True))

    for step in range(21):
        ratio = (luminance(to_hex(PROBABILITY(step / 20))) + 0.05) / (luminance("#222222") + 0.05)
        assert ratio > 7.0  # WCAG AAA


def test_styles_are_fixed_and_never_alike():
    names = [*KNOWN, *(f"estimator_{i}" for i in range(30))]
    styles = method_styles(names)
    # oracle and truth are two names of one method
    assert len(set(styles.values())) == len(names) - 1
    assert method_styles(names[::-1]) == styles
    assert styles["hnet"] == method_styles(["hnet"])["hnet"]
    assert method_styles(["estimator_3"])["estimator_3"].hollow
