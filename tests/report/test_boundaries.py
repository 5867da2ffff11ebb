"""Agreement, enrichment, stability, the suite of texts and the checks of the evaluation."""

import json

import numpy as np
import pytest

from rltok_core.report.boundaries import (
    agreement,
    boundary_table,
    evaluation_checks,
    f1,
    free_boundaries,
    suite,
)
from rltok_core.report.collect import collect
from rltok_core.report.edition import Edition, NothingToShow
from rltok_core.report.heatmaps import prose, texts


def _edition(lab) -> Edition:
    return Edition(collect(lab.file))


def _write(lab, run, name: str, values: dict) -> None:
    (lab.results / "evaluations" / run.id / name).write_text(json.dumps(values))


def _heatmap(lab, run, boundary: list[int]) -> None:
    entry = {"document": 1, "bytes": list(b"abcdefghij"), "boundary": boundary}
    entry |= {"prob": [0.5] * 10, "bits": [1.0] * 10}
    _write(lab, run, "heatmap.json", {"documents": [entry]})


def _probes(lab, run, rate: float) -> None:
    text = {"name": "number", "title": "a number", "bytes": list(b"1234"), "first": 0, "last": 3}
    text |= {"prob": [rate] * 4, "boundary": [0, 1, 0, 1], "bits": [2.0] * 4, "rate": rate}
    edits = [
        {"edit": "upper_case", "title": "", "cases": 2, "kept": 0.5, "kept_after": None},
        {"edit": "typo", "title": "", "cases": 2, "kept": 0.9, "kept_after": 0.8},
    ]
    _write(lab, run, "probes.json", {"suite_hash": "a", "texts": [text], "stability": edits})


def test_f1_by_counting():
    a, b = np.array([1, 1, 0, 0, 1], bool), np.array([1, 0, 1, 0, 1], bool)
    # two shared; precision 2/3, recall 2/3
    assert f1(a, b) == pytest.approx(2 / 3)
    assert f1(a, ~a) == 0.0
    assert f1(a & False, b & False) is None


def test_forced_ends_are_left_out_of_agreement(lab):
    first, second = lab.plan([lab.block("prose", ["uniform", "hnet"], training={"seq_len": 5})])
    for run in lab.runs:
        lab.finish(run)
    # windows of 4 bytes: places 3 and 7 are forced, and the last one
    _heatmap(lab, first, [1, 0, 0, 1, 0, 1, 0, 1, 0, 1])
    _heatmap(lab, second, [1, 0, 0, 1, 0, 0, 1, 1, 0, 1])
    edition = _edition(lab)
    (found,) = free_boundaries(edition.rows[0].results[0]).values()
    assert found.tolist() == [True, False, False, False, True, False, False]
    (record,) = agreement(edition).records
    assert record["f1"] == pytest.approx(0.5)


def test_methods_on_different_texts_have_no_agreement(lab):
    first, second = lab.plan([lab.block("prose", ["uniform", "hnet"])])
    lab.finish(first)
    lab.finish(second)
    entry = {"document": 1, "bytes": [1, 2], "boundary": [0, 1], "prob": [0, 1], "bits": [1, 1]}
    _write(lab, second, "heatmap.json", {"documents": [entry]})
    with pytest.raises(NothingToShow, match="same text"):
        agreement(_edition(lab))


def test_boundary_table_and_suite(lab):
    new, old = lab.plan([lab.block("prose", ["hnet", "uniform"])])
    lab.finish(new, enrichment={"final": 1.7, "early": 1.4, "hard_share": 0.2},
               token_length_entropy=2.5)  # fmt: skip
    lab.finish(old)
    edition = _edition(lab)
    with pytest.raises(NothingToShow, match="suite of texts"):
        suite(edition)
    _probes(lab, new, 0.25)
    edition = _edition(lab)
    # the older evaluation has none of it, and no line
    (record,) = boundary_table(edition).records
    assert list(record.values())[4:] == [1.7, 1.4, 2.5, 0.5, 0.9, 0.8]
    shown = suite(edition).figures[""].axes[0]
    assert [text.get_text() for text in shown.texts] == ["0.25"]
    assert [label.get_text() for label in shown.get_yticklabels()] == ["hnet"]
    assert texts(edition.done)[-1].title == "a number (prose)"


def test_checks_of_the_evaluation(lab):
    runs = lab.plan([lab.block("prose", ["bpe", "bpe_causal", "hnet"])])
    draws = {"n": 3, "bpb": [1.9, 1.91, 1.92], "bpb_sd": 0.01}
    for run, leak in zip(runs, (0.5, 0.0, None), strict=True):
        more = {} if leak is None else {"leak": {"max_difference": leak}}
        lab.finish(run, {"bpe": 1.9, "bpe_causal": 1.93, "hnet": 1.8}[run.estimator.label],
                   draws=draws, **more)  # fmt: skip
    lines = {line[0]: line[1:] for line in evaluation_checks(_edition(lab)).blocks[0].lines}
    assert lines["bpe \u2020"] == ["1.900", "0.0100", "1.902", "0.5", "+0.030"]
    assert lines["bpe_causal"][3:] == ["none", "\u2013"]
    assert lines["hnet !"][3:] == ["\u2013", "\u2013"]


def test_methods_with_more_of_a_document_have_a_picture_of_their_own(lab):
    runs = lab.plan([lab.block("prose", ["uniform", "hnet"])])
    for run in runs:
        lab.finish(run)
    _heatmap(lab, runs[0], [0] * 10)
    assert list(prose(_edition(lab)).figures) == [
        "heatmap_prose_tiny_1", "heatmap_prose_tiny_1_157", "heatmap_prose_tiny_3",
    ]  # fmt: skip
