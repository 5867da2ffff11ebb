"""The curriculum table: pairs, paired differences and the order of the methods, by hand."""

import pytest

from rltok_core.report.collect import collect
from rltok_core.report.curriculum import curriculum_table, effects
from rltok_core.report.edition import Edition, NothingToShow

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
    """An experiment with each of BPB's methods without and with a curriculum."""
    blocks = [
        lab.block("planted", list(BPB)),
        lab.block("planted", [*BPB, "pooling"], training={"curriculum": CURRICULUM}),
    ]
    for run in lab.plan(blocks, seeds=SEEDS):
        if run.estimator.label in BPB:
            side = int(run.training.curriculum is not None)
            lab.finish(run, BPB[run.estimator.label][side][run.seed])
    return Edition(collect(lab.file, None))


def test_each_method_is_compared_with_itself(finished):
    ((_, found),) = effects(finished.rows).items()
    assert [effect.plain.label for effect in found] == list(BPB)  # pooling has no counterpart
    means = [effect.paired.difference.mean for effect in found]
    assert means == pytest.approx([-0.01, 0.05, -0.06])
    assert [effect.paired.difference.n for effect in found] == [3, 3, 3]


def test_the_table_says_who_changes_places(finished):
    table = curriculum_table(finished)
    lines = {record["estimator"]: record for record in table.records}
    ranks = {name: (line["rank_without"], line["rank_with"]) for name, line in lines.items()}
    assert ranks == {"uniform": (3, 3), "stride": (1, 2), "hnet": (2, 1)}
    assert lines["uniform"]["low"] == pytest.approx(-0.01 - 4.302653 * 0.01 / 3**0.5)
    words = table.caption
    assert "best first: stride, hnet, uniform. With it: hnet, stride, uniform" in words
    # of three pairs two keep their order: tau = (2 - 1) / 3
    assert "tau of the two is 0.33: 1 of 3 pairs of methods change places in the mean" in words
    assert ", 1 of them beyond both" in words
    assert "(stride and hnet)" in words
    hnet = table.blocks[0].lines[2]
    assert hnet[1:4] == ["3", "0.770", "0.710"] and hnet[5] == "2 → 1"


def test_an_experiment_without_pairs_has_no_such_table(lab):
    for run in lab.plan([lab.block("planted", list(BPB))], seeds=[0]):
        lab.finish(run)
    with pytest.raises(NothingToShow, match="curriculum alone"):
        curriculum_table(Edition(collect(lab.file, None)))
