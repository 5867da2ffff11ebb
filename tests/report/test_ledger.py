"""The fidelity ledger: which rows it pairs, its figures and verdicts, on made-up scores."""

import functools
from pathlib import Path

import pytest

from rltok_core.config.experiment import read_experiment
from rltok_core.report.collect import Collection, Result
from rltok_core.report.edition import Edition, NothingToShow
from rltok_core.report.ledger import DECISIONS, IDENTICAL, ledger, ledger_table, pairs_of
from rltok_core.report.rows import rows

# label: (difference to the other side's seeds 0 and 1), on every corpus
SHIFTS = {
    "gamma_0.99": (0.05, 0.05),
    "auto_weight_1": (0.004, 0.0045),
    "window_2": (0.02, -0.03),
    "keys_5": (-0.2, -0.21),
}


@functools.cache
def resolved(name):
    return read_experiment(Path(f"configs/experiments/{name}.yaml"))


def collection(name="ledger", absent=()):
    """The experiment's runs, scored 1 + seed / 10 and what SHIFTS says; `absent` labels aside."""
    experiment, runs = resolved(name)
    found = []
    for run in runs:
        shift = SHIFTS.get(run.estimator.label, (0, 0))[run.seed]
        bpb = 1 + run.seed / 10 + shift
        scores = {"bpb": bpb, "bpb_threshold": bpb - 0.03, "boundary_rate": 0.2}
        scores |= {"scored_bytes": 4095 * 3, "windows": 3}
        missing = (run.estimator.label, run.seed) in absent
        found.append(Result(run, Path("x"), "missing" if missing else "complete",
                            evaluation={} if missing else scores))  # fmt: skip
    return Collection(experiment, found)


def entries(**given):
    return {(e.number, e.data, e.other): e for e in ledger(rows(collection(**given)))}


def test_every_point_of_the_ledger_is_there_on_both_corpora():
    found = entries()
    assert {number for number, _, _ in found} == set(range(1, 13))
    for data in ("planted", "prose"):
        assert {n for n, where, _ in found if where == data} == {1, 2, 3, 4, 5, 6, 7, 8, 9, 12}


@pytest.mark.parametrize("decision", DECISIONS, ids=lambda d: f"{d.number}-{d.other}")
def test_a_pair_differs_in_its_key_alone(decision):
    def leaves(values, prefix=()):
        if not isinstance(values, dict):
            return {(prefix, repr(values))}
        return {leaf for k, v in values.items() for leaf in leaves(v, (*prefix, k))}

    pairs = pairs_of(decision, rows(collection()))
    assert len(pairs) == 2
    for ours, other in pairs:
        parts = [
            leaves(row.run.model_dump(mode="json", include={"data", "model", "training"}))
            | leaves(row.run.estimator.identity, ("estimator",))
            for row in (ours, other)
        ]
        assert {".".join(key) for key, _ in parts[0] ^ parts[1]} == {decision.key}


def test_differences_are_the_other_side_less_ours_and_verdicts_follow_the_rule():
    found = entries()
    weight = found[2, "planted", "1"]
    assert weight.found.difference.mean == pytest.approx(0.00425)
    assert weight.verdict == "no"  # 0.00425 +- 12.7 x 0.00025
    # other - ours: 0.9 less 0.99, and ours is the one shifted up, by the same in both seeds
    discount = found[1, "planted", "0.9"]
    assert discount.found.difference.mean == pytest.approx(-0.05)
    assert discount.verdict == "yes"
    assert found[4, "prose", "and the previous boundary"].verdict == "undecided"
    assert found[9, "planted", "w + 1 keys"].verdict == "yes"
    assert found[3, "prose", "rounded to bf16"].verdict == "no"
    assert found[10, "", "a loop over positions"].verdict == "no"


def test_points_of_the_evaluation_alone_are_read_off_one_row():
    found = entries()
    padded = found[6, "prose", "with one more a sequence"].found.difference
    assert padded.mean == pytest.approx((1.05) * (4095 / 4096 - 1))
    assert found[7, "planted", "threshold 0.5"].found.difference.mean == pytest.approx(-0.03)


def test_missing_runs_leave_a_gap():
    found = entries(absent=[("window_2", 0), ("keys_5", 0), ("keys_5", 1)])
    assert found[4, "planted", "and the previous boundary"].verdict == "one seed"
    assert found[9, "planted", "w + 1 keys"].verdict == "missing"
    assert found[9, "prose", "w + 1 keys"].verdict == "no"


def test_the_table_holds_every_entry():
    table = ledger_table(Edition(collection(absent=[("keys_5", 0), ("keys_5", 1)])))
    assert len(table.records) == len(table.blocks[0].lines) == 9 * 2 + 2 * 2 + 2
    weight = next(record for record in table.records if record["point"] == 2)
    assert weight["difference_bpb"] == pytest.approx(0.00425)
    assert "Verdict, by the interval" in table.caption


def test_another_experiment_is_no_ledger():
    with pytest.raises(NothingToShow, match="one decision"):
        ledger_table(Edition(collection("laptop")))


def test_what_is_identical_by_construction_names_tests_that_exist():
    for *_, note in IDENTICAL:
        paths = [word.strip(",") for word in note.split() if word.startswith("tests/")]
        assert paths and all(Path(path).is_file() for path in paths)
