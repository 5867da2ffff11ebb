"""The tables: columns, names that look like nothing, gaps, marks, LaTeX."""

import csv
import io
import shutil
import subprocess

import pandas as pd
import pytest

from rltok_core.errors import UserError
from rltok_core.report.collect import collect
from rltok_core.report.edition import Edition
from rltok_core.report.latex import document, escape
from rltok_core.report.main_table import csv_values
from rltok_core.report.reading import caption, interval, number
from rltok_core.report.rows import compare
from rltok_core.report.statistics import estimate
from rltok_core.report.writing import write_product

PROMISED = (
    "data size estimator n_seeds bpb bpb_low bpb_high bpb_early boundary_rate bytes_per_token "
    "whitespace_share truth_f1 truth_f1_exact floor_bpb mid_usage causal curriculum published_bpb"
)


def _write(lab):
    edition = Edition(collect(lab.file))
    for name in ("main_table", "paired_differences", "provenance"):
        write_product(name, edition, lab.home / "out")
    return edition.rows


def _read(lab, name="main_table.csv"):
    text = (lab.home / "out" / name).read_text(encoding="utf-8")
    return list(csv.DictReader(io.StringIO(text)))


def test_promised_columns_and_values(lab):
    runs = lab.plan([lab.block("prose", ["uniform", "bpe"]), lab.block("planted", ["hnet"])],
                    seeds=[0, 1])  # fmt: skip
    for run, bpb in zip(runs, (1.98, 1.99, 1.94, 1.96, 0.6, 0.7), strict=True):
        lab.finish(run, bpb)
    _write(lab)
    uniform, bpe, hnet = _read(lab)
    assert list(uniform)[:18] == PROMISED.split()
    assert float(uniform["bpb"]) == pytest.approx(1.985)
    assert float(uniform["bpb_low"]) < 1.985 < float(uniform["bpb_high"])
    assert (uniform["n_seeds"], uniform["seeds"], uniform["published_bpb"]) == ("2", "0 1", "1.376")
    assert (bpe["causal"], uniform["causal"]) == ("false", "true")
    assert float(bpe["difference_bpb"]) == pytest.approx(-0.035)
    assert (hnet["truth_f1"], hnet["truth_f1_exact"], hnet["floor_bpb"]) == ("0.9", "0.7", "0.47")
    assert hnet["true_model_bpb"] == "0.495"
    assert float(hnet["gap_bpb"]) == pytest.approx(0.18)
    assert (hnet["whitespace_share"], hnet["published_bpb"]) == ("", "")
    assert uniform["parameters"] == "123456.0"


def test_K33_names_that_look_like_nothing_keep_their_rows(lab):
    names = ["None", "NA", "null", "nan", "uniform", "hnet"]
    for run in lab.plan([lab.block("prose", names)]):
        lab.finish(run)
    _write(lab)
    path = lab.home / "out" / "main_table.csv"
    assert pd.read_csv(path, keep_default_na=False)["estimator"].tolist() == names
    assert [row["estimator"] for row in _read(lab)] == names
    text = (lab.home / "out" / "main_table.md").read_text()
    assert all(f"| {name} " in text for name in names)


def test_promise_10_K35_one_seed_says_so(lab):
    (run,) = lab.plan([lab.block("prose", ["uniform"])])
    lab.finish(run, 1.5)
    _write(lab)
    (row,) = _read(lab)
    assert (row["bpb"], row["bpb_low"], row["bpb_high"], row["n_seeds"]) == ("1.5", "", "", "1")
    text = (lab.home / "out" / "main_table.md").read_text()
    assert "1.500 (n=1)" in text
    assert "±" not in text


def test_without_a_baseline_there_is_no_column_of_differences(lab):
    (run,) = lab.plan([lab.block("prose", ["hnet"])])
    lab.finish(run)
    _write(lab)
    assert "uniform" not in (lab.home / "out" / "main_table.md").read_text()


def test_K15_the_table_says_that_documents_are_never_packed(lab):
    (run,) = lab.plan([lab.block("prose", ["uniform"])])
    lab.finish(run)
    _write(lab)
    text = (lab.home / "out" / "main_table.md").read_text()
    assert "Documents are never packed into one sequence" in text


def test_K35_identical_seeds(lab):
    for run in lab.plan([lab.block("prose", ["uniform"])], seeds=[0, 1, 2]):
        lab.finish(run, 1.3)
    _write(lab)
    (row,) = _read(lab)
    assert float(row["bpb_low"]) == float(row["bpb_high"]) == pytest.approx(1.3)
    assert "nan" not in (lab.home / "out" / "main_table.md").read_text()


def test_K37_nine_of_ten(lab):
    runs = lab.plan([lab.block("prose", ["uniform"])], seeds=list(range(10)))
    for run in runs[:3] + runs[4:]:
        lab.finish(run)
    lab.fail(runs[3], "the gradient of head.weight is nan")
    _write(lab)
    (row,) = _read(lab)
    assert (row["n_seeds"], row["failed_or_missing"], row["planned_seeds"]) == ("9", "1", "10")
    assert row["seeds"] == "0 1 2 4 5 6 7 8 9"
    text = (lab.home / "out" / "main_table.md").read_text()
    assert "9 of 10" in text
    assert runs[3].id in text
    assert "the gradient of head.weight is nan" in text.replace("\\", "")
    statuses = [record["status"] for record in _read(lab, "provenance.csv")]
    assert statuses.count("complete") == 9
    assert statuses[3] == "failed"


def test_a_method_without_any_finished_run_keeps_its_row(lab):
    runs = lab.plan([lab.block("prose", ["uniform", "hnet"])])
    lab.finish(runs[0])
    _write(lab)
    row = _read(lab)[1]
    assert (row["estimator"], row["n_seeds"], row["bpb"]) == ("hnet", "0", "")


def test_K17_seeds_off_target_to_either_side_are_flagged_all_the_same(lab):
    high, low = lab.plan([lab.block("prose", ["hnet"])], seeds=[0, 1])
    lab.finish(high, boundary_rate=0.26)
    lab.finish(low, boundary_rate=0.14)
    (row,) = Edition(collect(lab.file)).rows
    assert row.mean("boundary_rate") == pytest.approx(0.2) and row.rate_flag == "off target"


def test_marks_and_caption(lab):
    training = {"curriculum": {"open_until": 0.1}, "controller": {"gain": 0.02}}
    runs = lab.plan([lab.block("prose", ["uniform", "bpe", "hnet", "stride"])], training=training)
    lab.finish(runs[0])
    lab.finish(runs[1])
    lab.finish(runs[2], controller=True)
    lab.finish(runs[3], rate_flag=True)
    edition = Edition(collect(lab.file))
    values = {row.label: csv_values(row, None) for row in edition.rows}
    # the schedule doesn't touch a method that learns nothing
    assert [values[n]["curriculum"] for n in ("uniform", "bpe", "hnet")] == [False, False, True]
    assert values["hnet"]["controller"] is True
    assert values["stride"]["rate_flag"] == "collapsed"
    assert values["hnet"]["rate_flag"] == "off target"
    assert values["uniform"]["rate_flag"] == ""
    _write(lab)
    text = (lab.home / "out" / "main_table.md").read_text()
    for line in ("| bpe \u2020 |", "| hnet \u2021 \u00a7 ! |", "| stride !! |"):
        assert line in text
    words = caption(edition)
    for part in ("Student's t interval at 95 %", "another scale and another corpus", "not causal",
                 "rate curriculum", "controller", "collapsed", "10% off"):  # fmt: skip
        assert part in words


def test_without_a_token_level_boundaries_mean_nothing(lab):
    block = lab.block("planted", ["no_mid"]) | {"model": {"n_mid": 0}}
    (run,) = lab.plan([block])
    lab.finish(run, mid_usage=None, mid_stale=None, rate_flag=True)
    _write(lab)
    (row,) = _read(lab)
    names = "boundary_rate bytes_per_token truth_f1 truth_f1_exact mid_usage rate_flag"
    assert [row[name] for name in names.split()] == [""] * 6
    assert row["bpb"] != ""


def test_same_label_with_other_settings_is_another_row(lab):
    block = lab.block("prose", ["uniform"])
    wide = lab.block("prose", ["uniform"], training={"target_rate": 0.5})
    for run in lab.plan([block, wide]):
        lab.finish(run)
    _write(lab)
    assert [row["variant"] for row in _read(lab)] == ["target_rate=0.2", "target_rate=0.5"]


def test_same_bytes_in_every_row_K19(lab):
    runs = lab.plan([lab.block("prose", ["uniform", "hnet"])])
    lab.finish(runs[0])
    lab.finish(runs[1], scored_bytes=2191)
    with pytest.raises(UserError, match="2190.*2191"):
        _write(lab)


def test_paired_table(lab):
    runs = lab.plan([lab.block("prose", ["uniform", "hnet"])], seeds=[0, 1, 2])
    for run, bpb in zip(runs, (1.98, 1.99, 1.97, 1.90, 1.92, 1.91), strict=True):
        lab.finish(run, bpb)
    all_rows = _write(lab)
    (record,) = _read(lab, "paired_differences.csv")
    assert (record["estimator"], record["baseline"], record["n_pairs"]) == ("hnet", "uniform", "3")
    assert float(record["difference_bpb"]) == pytest.approx(-0.07)
    assert (record["p_sign_flip"], float(record["smallest_p"])) == ("", 0.25)
    assert 0 < float(record["standard_error_seeds"]) < 0.01
    assert 0 <= float(record["share_of_variance_seeds"]) <= 1
    assert float(record["documents_low"]) <= -0.069 <= float(record["documents_high"]) + 0.002
    assert compare(all_rows[0], all_rows) is None


def test_promise_9_provenance_names_everything(lab):
    (run,) = lab.plan([lab.block("prose", ["uniform"])])
    lab.finish(run)
    _write(lab)
    (record,) = _read(lab, "provenance.csv")
    assert record["folder"] == str(lab.results / "runs" / run.id)
    assert (record["run_hash"], record["data_hash"]) == (run.hash, "data-of-prose")
    assert "abc123" in record["code_version"]
    assert (record["device"], record["device_name"]) == ("cpu", "A processor")
    assert '"torch": "2.13.0"' in record["package_versions"]


def test_numbers_for_reading():
    assert number(-0.0004) == "0.000"
    assert number(-0.012) == "\u22120.012"
    assert number(None) == "\u2013"
    assert interval(estimate([1.0])) == "1.000 (n=1)"


NASTY = r"a_b & 50% of $x$ #1 {y} ~z^2 \end{document} <b>|`'" + '" -- [x] \u00e9 \u4e2d \U0001f44d'


def test_latex_escape():
    assert escape("a_b & c%") == r"a\_b \& c\%"
    assert escape(r"\x{}") == r"\textbackslash{}x\{\}"
    assert escape("\u00e9") == "e"
    assert escape("\U0001f44d") == "[U+1F44D]"
    assert escape(NASTY).isascii()


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_compiles_whatever_the_names_hold(tmp_path):
    signs = "".join(map(chr, range(32, 127)))
    table = (NASTY, [signs, "BPB"], [["[" + NASTY, "\u22120.012 [\u22120.020, +0.001]"]])
    (tmp_path / "t.tex").write_text(document([table], NASTY, [NASTY, "x"]), encoding="utf-8")
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:]
