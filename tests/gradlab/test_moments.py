"""Means and variances by algebra against the joint enumeration; wrong estimators are caught."""

import pytest
import torch

from rltok_core.boundaries.score_function import ScoreFunction
from rltok_core.gradlab import moments
from rltok_core.gradlab.exact import exact_gradient, per_sequence_gradients

RATE = 0.3


def by_algebra(model, centred, ids_BS, columns):
    """centred() of the rows; model must have batch_relative off."""
    rows = []
    for ids_S in ids_BS:
        found = per_sequence_gradients(model, ids_S, RATE, logits=True)
        assert moments.is_separate(model, ids_S, RATE, found)
        T_MKP = moments.unit_gradients(
            found, moments.reward_map(model.estimator, found.outcome), columns
        )
        reward_MK = model.estimator.reward(found.outcome)[:, :-1]
        rows.append(moments.rewarded_row(found, T_MKP, reward_MK, columns))
    return moments.centred(rows, centred)


@pytest.mark.parametrize("rows, positions", [(2, 5), (3, 4)])
@pytest.mark.parametrize("scope", ["policy", "network"])
def test_centring_by_algebra_equals_the_joint_enumeration(
    rows, positions, scope, net_of, rows_of, columns_of
):
    ids_BS = rows_of(rows, positions)
    model = net_of("score_function", gamma=0.9, batch_relative=True)
    columns = columns_of(model)
    if scope == "network":
        columns = torch.ones_like(columns)
    plain = net_of("score_function", gamma=0.9, batch_relative=False)
    expected = moments.joint(model, ids_BS, RATE, columns)
    found = by_algebra(plain, True, ids_BS, columns)
    assert expected.variance > 1e-4
    assert (found.mean_P - expected.mean_P).abs().max() < 1e-12
    assert found.variance == pytest.approx(expected.variance, rel=1e-10)


def test_separate_rows_and_algebra_agree_without_a_batch_baseline(net_of, rows_of, columns_of):
    ids_BS = rows_of(3, 6)
    model = net_of("score_function", gamma=0.5, batch_relative=False)
    columns = columns_of(model)
    rows = [
        moments.separate_row([per_sequence_gradients(model, ids_S, RATE)], columns)
        for ids_S in ids_BS
    ]
    first, second = moments.separate(rows), by_algebra(model, False, ids_BS, columns)
    assert (first.mean_P - second.mean_P).abs().max() < 1e-13
    assert first.variance == pytest.approx(second.variance, rel=1e-10)


@pytest.mark.parametrize("name", ["score_function", "score_function_w1"])
@pytest.mark.parametrize("early", [True, False])
def test_score_function_is_unbiased_on_policy_and_network(name, early, net_of, rows_of):
    model = net_of(name, gamma=1.0, batch_relative=False, early_exit_reward=early)
    ids_BS = rows_of(2, 7)
    every = torch.ones(sum(p.numel() for p in model.parameters()), dtype=torch.bool)
    found = by_algebra(model, False, ids_BS, every)
    exact_P = exact_gradient(model, ids_BS, RATE).mean(0)
    assert exact_P.norm() > 0.1
    assert (found.mean_P - exact_P).abs().max() < 1e-9


@pytest.mark.parametrize("count", [1, 2, 4])
def test_centring_shrinks_the_mean_by_b_minus_1_over_b(count, net_of, rows_of, columns_of):
    model = net_of("score_function", gamma=1.0, batch_relative=False)
    ids_BS, columns = rows_of(count, 6), columns_of(net_of("score_function"))
    found = by_algebra(model, True, ids_BS, columns)
    exact_P = exact_gradient(model, ids_BS, RATE).mean(0)[columns]
    assert (found.mean_P - (count - 1) / count * exact_P).abs().max() < 1e-12


class Flipped(ScoreFunction):
    def reward(self, outcome):
        return -super().reward(outcome)


class Shifted(ScoreFunction):
    def reward(self, outcome):
        return torch.roll(super().reward(outcome), -1, dims=1)


class Missing(ScoreFunction):
    """Without the reward of the last prediction."""

    def reward(self, outcome):
        reward_BS = super().reward(outcome).clone()
        reward_BS[:, -2] = 0
        return reward_BS


@pytest.mark.parametrize("wrong", [Flipped, Shifted, Missing])
def test_wrong_estimators_are_caught(wrong, net_of, rows_of, columns_of):
    model = net_of("score_function", gamma=1.0, batch_relative=False)
    model.estimator.__class__ = wrong
    ids_BS, columns = rows_of(1, 6), columns_of(model)
    (row,) = [
        moments.separate_row([per_sequence_gradients(model, ids_S, RATE)], columns)
        for ids_S in ids_BS
    ]
    exact_P = exact_gradient(model, ids_BS, RATE).mean(0)[columns]
    bias = (moments.separate([row]).mean_P - exact_P).norm() / exact_P.norm()
    assert bias > 0.01
    if wrong is Flipped:
        assert bias == pytest.approx(2, rel=1e-9)


def test_a_term_that_looks_across_rows_is_noticed(net_of, rows_of):
    model = net_of("score_function", batch_relative=True)
    ids_S = rows_of(1, 6)[0]
    found = per_sequence_gradients(model, ids_S, RATE)
    assert not moments.is_separate(model, ids_S, RATE, found)


def test_a_loss_that_is_not_linear_in_its_reward_is_refused(net_of, rows_of):
    class Squared(ScoreFunction):
        def losses(self, outcome):
            terms = super().losses(outcome)
            policy = terms["policy"]
            return {"policy": policy._replace(value=policy.value**2)}

    model = net_of("score_function", batch_relative=False)
    model.estimator.__class__ = Squared
    found = per_sequence_gradients(model, rows_of(1, 5)[0], RATE)
    with pytest.raises(ValueError, match="linear"):
        moments.reward_map(model.estimator, found.outcome)
