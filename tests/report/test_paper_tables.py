"""Published numbers beside ours: gaps keep their lines, and verdicts follow the written rule."""

import csv
import json

import pytest

from rltok_core.report.collect import collect
from rltok_core.report.edition import Edition, NothingToShow
from rltok_core.report.paper_tables import ablation_table, code_table, paper_table, rate_table
from rltok_core.report.statistics import Estimate
from rltok_core.report.sweeps import ablations, aspect_ratio, lambda_sweeps, sweep
from rltok_core.report.verdicts import MAIN, departures, order, value_verdict
from rltok_core.report.writing import write_product

SIX = ["uniform", "pooling", "hnet", "bpe", "score_function_w1", "score_function"]


def _records(table) -> dict[tuple, dict]:
    return {(r["paper_method"], r["measure"]): r for r in table.records}


def test_main_table_has_every_number_of_the_paper_and_ours_beside(lab):
    runs = lab.plan([lab.block("prose", SIX[:-1])], seeds=[0, 1])
    for run in runs[:-2]:
        lab.finish(run)
    lab.fail(runs[-2], "nan")
    table = paper_table(Edition(collect(lab.file)))
    records = _records(table)
    assert len(records) == 6 * 6
    uniform = records["Uniform", "test"]
    assert uniform["published"] == 1.376
    assert uniform["difference"] == pytest.approx(uniform["ours"] - 1.376)
    assert uniform["verdict"] == "another scale: no verdict"
    # failed and missing, not planned, and never evaluated on the tasks
    assert records["Score function, w = 1", "test"]["state"] == "failed, missing"
    assert records["Score function, w = 8", "test"]["state"] == "not planned"
    assert records["Uniform", "PIQA"]["verdict"] == "no run"
    lines = {line[0]: line for line in table.blocks[0].lines}
    assert lines["Score function, w = 8"][1:4] == ["not planned", "0", "\u2013 (1.557)"]
    assert lines["Score function, w = 1"][2] == "0 of 2 (failed, missing)"
    assert "10 pairs" not in table.caption and "of 6 pairs" in table.caption


def test_tasks_come_from_the_downstream_files(lab):
    runs = lab.plan([lab.block("prose", ["uniform", "hnet"])])
    for run in runs:
        lab.finish(run)
    folder = lab.results / "downstream"
    folder.mkdir()
    tasks = {"tasks": {"piqa": {"bpb": 1.5, "bpb_se": 0.1, "acc_bytes": 0.6, "items": 4}}}
    (folder / f"{runs[0].id}.json").write_text(json.dumps(tasks))
    records = _records(paper_table(Edition(collect(lab.file))))
    assert records["Uniform", "PIQA"]["ours"] == 1.5
    assert records["H-Net", "PIQA"]["ours"] is None
    assert records["Uniform", "LAMBADA"]["ours"] is None


def test_value_verdicts_follow_the_rule():
    found = Estimate(1.38, 1.37, 1.39, 3)
    assert value_verdict(found, 1.376, []) == "agrees"
    assert value_verdict(found, 1.366, []) == "differs"
    assert value_verdict(found, 1.376, ["size"]) == "another scale: no verdict"
    assert value_verdict(Estimate(1.38, None, None, 1), 1.376, []) == "one seed: no verdict"
    assert value_verdict(None, 1.376, []) == "no run"


def _paper_scale(lab):
    """Plans the six methods as if on FineWeb at 147M; nothing of that size is trained."""
    lab.sources["prose"] = {"kind": "hub", "path": "HuggingFaceFW/fineweb", "column": "text"}
    training = {"steps": 11444, "batch_size": 128, "seq_len": 4096}
    block = lab.block("prose", SIX, training=training, model={"size": "147M"})
    return lab.plan([block], seeds=[0, 1, 2])


def test_order_of_methods_at_the_papers_scale(lab):
    runs = _paper_scale(lab)
    ours = dict(zip(SIX, (1.37, 1.30, 1.39, 1.29, 1.28, 1.2801), strict=True))
    for run in runs:
        shift = 0.001 * run.seed * (1 if run.estimator.label == "hnet" else 2)
        lab.evaluate(run, ours[run.estimator.label] + shift)
    edition = Edition(collect(lab.file))
    assert all(departures(row.run, MAIN) == [] for row in edition.rows)
    rows = {row.label: row for row in edition.rows}
    found = order([(rows["uniform"], 1.376), (rows["hnet"], 1.386)], ("bpb",), MAIN)
    assert (found.same, found.reversed, found.open) == (1, 0, 0)
    assert str(found).startswith("same order (1 same")
    found = order([(rows["pooling"], 1.372), (rows["uniform"], 1.376)], ("bpb",), MAIN)
    assert str(found).startswith("same order")
    found = order([(rows["pooling"], 1.372), (rows["bpe"], 1.371)], ("bpb",), MAIN)
    assert str(found).startswith("same order")
    found = order([(rows["bpe"], 1.299), (rows["pooling"], 1.2)], ("bpb",), MAIN)
    assert str(found).startswith("not the same order (0 same, 1 reversed")
    # the same difference in every pair: its interval is a point, on the other side of 0
    found = order([(rows["score_function"], 1.2), (rows["score_function_w1"], 1.3)], ("bpb",), MAIN)
    assert found.reversed == 1
    verdict = _records(paper_table(edition))["Score function, w = 1", "test"]["verdict"]
    assert verdict == "agrees"


def test_another_scale_names_what_is_other(lab):
    training = {"controller": {}, "curriculum": {}}
    (run,) = lab.plan([lab.block("prose", ["hnet"], training=training)])
    assert departures(run, MAIN) == ["corpus", "size", "training bytes", "curriculum", "controller"]


@pytest.mark.parametrize("name", ["fineweb-edu", "fineweb-2"])
def test_a_corpus_of_a_longer_name_is_another_one(name, lab):
    runs = _paper_scale(lab)
    assert departures(runs[0], MAIN) == []
    source = runs[0].data.source.model_copy(update={"path": f"HuggingFaceFW/{name}"})
    data = runs[0].data.model_copy(update={"source": source})
    assert departures(runs[0].model_copy(update={"data": data}), MAIN) == ["corpus"]


def test_code_and_rates(lab):
    for run in lab.plan([lab.block("code", ["score_function", "hnet", "uniform"])]):
        lab.finish(run)
    edition = Edition(collect(lab.file))
    records = _records(code_table(edition))
    assert records["H-Net", "test"]["published"] == 0.769
    assert len(records) == 2
    rates = {record["estimator"]: record for record in rate_table(edition).records}
    assert rates["hnet"]["off_target"] == pytest.approx(0.2)
    assert rates["hnet"]["flag"] == "off target"
    with pytest.raises(NothingToShow, match="no prose corpus"):
        paper_table(edition)


def _switched(lab, *entries, **block):
    """A plan of score-function rows with other parameters than the first's."""
    lab.plan([lab.block("prose", ["score_function"])])
    path = lab.home / "configs" / "estimators" / "score_function.yaml"
    params = {"window": 8, "gamma": 0.97, "batch_relative": True, "lam_target": 0.05}
    lab.estimator("score_function", "x:ScoreFunction", params)
    assert path.is_file()
    estimators = [{"name": "score_function", **entry} for entry in entries]
    return lab.plan([{"data": "prose", "size": "tiny", "estimators": estimators, **block}])


def test_ablations_are_found_by_what_they_change(lab):
    runs = _switched(
        lab, {}, {"label": "a", "params": {"gamma": 1}}, {"label": "b", "params": {"window": 1}},
        {"label": "two", "params": {"gamma": 1, "window": 1}},
        {"label": "c", "params": {"gamma": 0.9}},
        {"label": "list", "training": {"betas": [0.9, 0.95]}},
    )  # fmt: skip
    for run in runs:
        lab.finish(run)
    edition = Edition(collect(lab.file))
    ((base, found),) = ablations(edition.rows)
    assert base.label == "score_function"
    assert {name: row.label for name, row in found.items()} == {
        "no time discounting": "a",
        "no window": "b",
    }
    table = ablation_table(edition)
    assert len(table.records) == 6 * 3
    line = {line[0]: line for line in table.blocks[0].lines}["no target loss"]
    assert (line[1], line[6], line[-1]) == ("not planned", "\u22120.158", "not planned")


def test_a_sweep_is_rows_that_differ_in_one_number(lab):
    runs = _switched(
        lab, {}, {"label": "low", "params": {"lam_target": 0.005}},
        {"label": "high", "params": {"lam_target": 0.5}},
        {"label": "other", "params": {"lam_target": 0.5, "gamma": 0.9}},
    )  # fmt: skip
    for run in runs[:-2]:
        lab.finish(run)
    edition = Edition(collect(lab.file))
    (points,) = sweep(edition.rows, "estimator.params.lam_target")
    assert [(value, row.label) for value, row in points] == [
        (0.005, "low"), (0.05, "score_function"), (0.5, "high"),
    ]  # fmt: skip
    found = lambda_sweeps(edition)
    labels = [text.get_text() for text in found.figures[""].legends[0].get_texts()]
    assert labels == ["prose (tiny), ScoreFunction", "planned, no finished run"]
    with pytest.raises(NothingToShow):
        aspect_ratio(edition)


def test_aspect_ratio_is_mid_layers_at_their_rate(lab):
    entries = [
        {"label": f"r{r}", "model": {"n_mid": r}, "training": {"target_rate": 1 / r}}
        for r in (1, 2, 4)
    ]
    entries.append({"label": "off", "model": {"n_mid": 4}, "training": {"target_rate": 0.9}})
    for run in _switched(lab, *entries):
        lab.finish(run)
    found = aspect_ratio(Edition(collect(lab.file)))
    xs = found.figures[""].axes[0].lines[0].get_xdata()
    assert list(xs) == [1, 2, 4]


def test_every_paper_table_is_written_as_text_too(lab):
    for run in lab.plan([lab.block("prose", SIX)])[:3]:
        lab.finish(run)
    edition, out = Edition(collect(lab.file)), lab.home / "out"
    written = write_product("paper_table", edition, out)
    assert [path.suffix for path in written.paths] == [".csv", ".md", ".tex"]
    with (out / "paper_table.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 36
    assert "Verdict on a value" in (out / "paper_table.tex").read_text()
