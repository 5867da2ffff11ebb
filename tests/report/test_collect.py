"""Reading results: gaps are listed, never stumbled over; different data are refused."""

import pytest

from rltok_core.errors import UserError
from rltok_core.report.collect import Damaged, collect, read_json, read_metrics


def test_complete_missing_failed_and_damaged(lab):
    runs = lab.plan([lab.block("prose", ["uniform", "hnet"])], seeds=[0, 1, 2])
    lab.finish(runs[0])
    lab.train(runs[1])
    lab.fail(runs[2], "loss is nan")
    lab.finish(runs[3])
    (lab.results / "evaluations" / runs[3].id / "evaluation.json").write_text('{"bpb": NaN}')
    lab.train(runs[4])
    (lab.results / "runs" / runs[4].id / "training.json").unlink()
    found = {r.run.id: r for r in collect(lab.file).results}
    assert [found[run.id].status for run in runs] == [
        "complete",
        "missing",
        "failed",
        "damaged",
        "missing",
        "missing",
    ]
    assert "not evaluated" in found[runs[1].id].reason
    assert found[runs[2].id].reason == "loss is nan at step 7"
    assert "NaN is not strict JSON" in found[runs[3].id].reason
    assert "evaluation.json" in found[runs[3].id].reason
    assert "step 100" in found[runs[4].id].reason
    assert "not trained" in found[runs[5].id].reason


def test_data_that_differ_are_refused(lab):
    runs = lab.plan([lab.block("prose", ["uniform", "hnet"])])
    lab.finish(runs[0])
    lab.train(runs[1], data_hash="other")
    lab.evaluate(runs[1], data_hash="other")
    with pytest.raises(UserError) as error:
        collect(lab.file)
    for part in (runs[0].id, runs[1].id, "data-of-prose", "other"):
        assert part in str(error.value)


def test_different_corpora_may_differ(lab):
    runs = lab.plan([lab.block("prose", ["uniform"]), lab.block("code", ["uniform"])])
    for run in runs:
        lab.finish(run)
    assert len({r.data_hash for r in collect(lab.file).complete}) == 2


def test_evaluated_on_other_data_than_trained(lab):
    (run,) = lab.plan([lab.block("prose", ["uniform"])])
    lab.train(run, data_hash="old")
    lab.evaluate(run)
    with pytest.raises(UserError, match="trained on data old"):
        collect(lab.file)


def test_results_of_another_configuration_are_damaged(lab):
    (run, other) = lab.plan([lab.block("prose", ["uniform", "hnet"])])
    lab.finish(other)
    lab.finish(run, run_hash="0" * 64)
    found = collect(lab.file).results[0]
    assert found.status == "damaged"
    assert "run_hash" in found.reason


def test_nothing_at_all_is_one_clear_error(lab):
    lab.plan([lab.block("prose", ["uniform"])])
    with pytest.raises(UserError, match="no finished run of 'trial'"):
        collect(lab.file)


def test_an_evaluation_with_other_settings_is_not_this_ones(lab):
    (run,) = lab.plan([lab.block("prose", ["uniform"])])
    lab.finish(run, 1.5)
    lab.plan([lab.block("prose", ["uniform"])], evaluation={"sequences": 7})
    (result,) = collect(lab.file).results
    assert result.status == "missing" and "evaluated with other settings" in result.reason


def test_torn_last_line_is_left_out_and_a_damaged_one_named(tmp_path):
    path = tmp_path / "metrics.jsonl"
    whole = '{"kind": "train", "step": 1}\n{"kind": "validation", "step": 1}\n'
    path.write_text(whole + '{"kind": "tra')
    train, validation = read_metrics(path)
    assert (len(train), len(validation)) == (1, 1)
    path.write_text('{"kind": "train", "step"\n' + whole)
    with pytest.raises(Damaged, match="line 1"):
        read_metrics(path)
    assert read_metrics(tmp_path / "none.jsonl") == ([], [])


@pytest.mark.parametrize("line", [b"3", b'{"kind": "train"}', b'{"kind": "train", "step": "\xff"}'])
def test_a_line_that_is_no_record_is_named(line, tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(line + b'\n{"kind": "train", "step": 1}\n')
    with pytest.raises(Damaged, match="line 1"):
        read_metrics(path)


@pytest.mark.parametrize(
    ("name", "text", "where"),
    [
        ("heatmap.json", '{"documents": [', "heatmap.json"),
        ("heatmap.json", "{}", "documents"),
        ("documents.csv", "document,bytes,bits\n0,10,8.5\n1,10", "line 3"),
        ("documents.csv", "document,bytes\n0,10\n", "line 2"),
    ],
)
def test_a_damaged_file_beside_the_scores_is_one_damaged_run(name, text, where, lab):
    """The others are still reported (K37)."""
    runs = lab.plan([lab.block("prose", ["uniform", "hnet"])])
    for run in runs:
        lab.finish(run)
    (lab.results / "evaluations" / runs[0].id / name).write_text(text)
    damaged, whole = collect(lab.file).results
    assert (damaged.status, whole.status) == ("damaged", "complete")
    assert name in damaged.reason and where in damaged.reason


def test_strict_json(tmp_path):
    path = tmp_path / "x.json"
    path.write_text("[1]")
    with pytest.raises(Damaged, match="expected an object"):
        read_json(path)
