"""curriculum.md and .csv: pairs, paired differences and the order of the methods, by hand."""

import csv

import pytest

from rltok_core.report.collect import collect
from rltok_core.report.curriculum import effects, write_curriculum
from rltok_core.report.rows import rows

SEEDS = [0, 1, 2]
CURRICULUM = {"open_until": 0.1, "rules": True}
# label: BPB by seed without, with
BPB = {
    "uniform": ([0.80, 0.81, 0.82], [0.80, 0.80, 0.80]),
    "stride": ([0.70, 0.71, 0.72], [0.75, 0.76, 0.77]),
    "hnet": ([0.76, 0.77, 0.78], [0.70, 0.71, 0.72]),
}


@pytest.fixture
def finished(lab):
    """The rows of an experiment with each of BPB's methods without and with a curriculum."""
    blocks = [
        lab.block("planted", list(BPB)),
        lab.block("planted", [*BPB, "pooling"], training={"curriculum": CURRICULUM}),
    ]
    for run in lab.plan(blocks, seeds=SEEDS):
        if run.estimator.label in BPB:
            side = int(run.training.curriculum is not None)
            lab.finish(run, BPB[run.estimator.label][side][run.seed])
    return rows(collect(lab.file, None))


def test_each_method_is_compared_with_itself(finished):
    ((_, found),) = effects(finished).items()
    assert [effect.plain.label for effect in found] == list(BPB)  # pooling has no counterpart
    means = [effect.paired.difference.mean for effect in found]
    assert means == pytest.approx([-0.01, 0.05, -0.06])
    assert [effect.paired.difference.n for effect in found] == [3, 3, 3]


def test_the_table_says_who_changes_places(finished, tmp_path):
    markdown, table = write_curriculum(finished, tmp_path)
    with open(table, encoding="utf-8") as file:
        lines = {line["estimator"]: line for line in csv.DictReader(file)}
    ranks = {name: (line["rank_without"], line["rank_with"]) for name, line in lines.items()}
    assert ranks == {"uniform": ("3", "3"), "stride": ("1", "2"), "hnet": ("2", "1")}
    assert float(lines["uniform"]["low"]) == pytest.approx(-0.01 - 4.302653 * 0.01 / 3**0.5)
    words = markdown.read_text("utf-8")
    assert "best first: stride, hnet, uniform. With it: hnet, stride, uniform" in words
    # of three pairs two keep their order: tau = (2 - 1) / 3
    assert "tau of the two is 0.33: 1 of 3 pairs of methods change places in the mean" in words
    assert ", 1 of them beyond both" in words
    assert "(stride and hnet)" in words
    assert "| hnet | 3 | 0.770 | 0.710 | -0.060 [-0.060, -0.060] | 2 → 1 |" in words


def test_an_experiment_without_pairs_has_no_such_table_and_keeps_no_old_one(lab, tmp_path):
    for run in lab.plan([lab.block("planted", list(BPB))], seeds=[0]):
        lab.finish(run)
    (tmp_path / "curriculum.md").write_text("of another time")
    assert write_curriculum(rows(collect(lab.file, None)), tmp_path) == []
    assert not (tmp_path / "curriculum.md").exists()
