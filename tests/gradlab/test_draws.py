"""Several draws a row: their law against sampling, their moments against every combination."""

import itertools

import pytest
import torch

from rltok_core.boundaries import disarm
from rltok_core.data.batch import Batch
from rltok_core.data.stream import RandomStream
from rltok_core.gradlab import draws, moments
from rltok_core.gradlab.exact import exact_gradient, per_sequence_gradients

RATE = 0.3
S = 5
NAMES = ["rloo", "disarm"]
SETTINGS = [(name, window) for name in NAMES for window in (1, 4)]


def row_of(model, ids_S):
    return per_sequence_gradients(model, ids_S, RATE, logits=True)


def left_out(model, found, columns, samples):
    map_MSK = moments.reward_map(model.estimator, found.outcome)
    reward_MK = model.estimator.reward(found.outcome)[:, :-1]
    T_MKP = moments.unit_gradients(found, map_MSK, columns)
    return draws.leave_one_out(moments.rewarded_row(found, T_MKP, reward_MK, columns), samples)


@pytest.mark.parametrize("name, window", SETTINGS)
def test_pairs_have_the_law_of_the_stream(name, window, net_of, rows_of):
    model, (ids_S,) = net_of(name, window=window), rows_of(1, S)
    found = row_of(model, ids_S)
    law_MM = draws.pair_law(found.outcome.proposal, model.estimator.antithetic)
    for axis in (0, 1):
        torch.testing.assert_close(law_MM.sum(axis), found.pi_M, rtol=0, atol=1e-12)
    count = 6000
    batch = Batch(
        ids_S.expand(count, -1), torch.full((count,), S), RandomStream(list(range(count)))
    )
    with torch.no_grad():
        a_KBS = model(batch, RATE, samples=2).proposal.boundary_BS.view(2, count, S)
    place_KB = (a_KBS[:, :, 1:-1] * torch.tensor([4, 2, 1])).sum(-1)
    counted = torch.bincount(place_KB[0] * 8 + place_KB[1], minlength=64).double() / count
    error = (law_MM.flatten() * (1 - law_MM.flatten()) / count).sqrt()
    assert ((counted - law_MM.flatten()).abs() <= 4.5 * error + 1e-12).all()


@pytest.mark.parametrize("scope", ["policy", "network"])
@pytest.mark.parametrize("name, window", SETTINGS)
def test_moments_are_those_of_every_combination(name, window, scope, net_of, rows_of, columns_of):
    model, (ids_S,) = net_of(name, window=window, gamma=0.9), rows_of(1, S)
    columns = columns_of(model)
    if scope == "network":
        columns = torch.ones_like(columns)
    expected = draws.joint_draws(model, ids_S, RATE, columns)
    found = row_of(model, ids_S)
    ways = [draws.paired(model, found, RATE, {"": columns})[""]]
    if name == "rloo":
        ways.append(left_out(model, found, columns, 2))
    for way in ways:
        torch.testing.assert_close(way.mean_P, expected.mean_P, rtol=1e-9, atol=1e-12)
        assert way.variance == pytest.approx(expected.variance, rel=1e-9)


def test_three_draws_are_those_of_every_combination(net_of, rows_of, columns_of):
    model, (ids_S,) = net_of("rloo", window=3, samples=3), rows_of(1, 4)
    columns = columns_of(model)
    expected = draws.joint_draws(model, ids_S, RATE, columns)
    found = left_out(model, row_of(model, ids_S), columns, 3)
    torch.testing.assert_close(found.mean_P, expected.mean_P, rtol=1e-9, atol=1e-12)
    assert found.variance == pytest.approx(expected.variance, rel=1e-9)


def gap(model, ids_S, columns, samples=2):
    """||E g - grad J|| / ||grad J|| on the policy's parameters."""
    exact_P = exact_gradient(model, ids_S[None], RATE)[0][columns]
    found = row_of(model, ids_S)
    if samples == 2:
        mean_P = draws.paired(model, found, RATE, {"": columns})[""].mean_P
    else:
        mean_P = left_out(model, found, columns, samples).mean_P
    return float((mean_P - exact_P).norm() / exact_P.norm())


@pytest.mark.parametrize("name, window", SETTINGS)
def test_unbiased_at_gamma_1(name, window, net_of, rows_of, columns_of):
    (ids_S,) = rows_of(1, 7)
    model = net_of(name, window=window, gamma=1.0)
    assert gap(model, ids_S, columns_of(model)) < 1e-9
    discounted = net_of(name, window=window, gamma=0.9)
    assert gap(discounted, ids_S, columns_of(model)) > 1e-3


def test_four_draws_are_unbiased_at_gamma_1(net_of, rows_of, columns_of):
    model, (ids_S,) = net_of("rloo", samples=4, gamma=1.0), rows_of(1, 7)
    assert gap(model, ids_S, columns_of(model), samples=4) < 1e-9


@pytest.mark.parametrize("missing", ["histories that differ", "the sign", "the baseline's draw"])
def test_a_wrong_antithetic_estimator_is_caught(missing, net_of, rows_of, columns_of, monkeypatch):
    (ids_S,) = rows_of(1, 7)
    right = disarm.antithetic_weights

    def wrong(a, b, p, q, same, gain_a, gain_b):
        if missing == "histories that differ":  # DisARM as published, though w > 1
            return right(a, b, p, q, torch.ones_like(same), gain_a, gain_b)
        if missing == "the sign":
            first, second = right(a, b, p, q, same, gain_a, gain_b)
            return first, -second
        # leave-one-out weights on draws that aren't independent
        gap_BS = (gain_a - gain_b) / 2
        return (a.double() - p) * gap_BS, -(b.double() - q) * gap_BS

    monkeypatch.setattr(disarm, "antithetic_weights", wrong)
    model = net_of("disarm", window=4, gamma=1.0)
    assert gap(model, ids_S, columns_of(model)) > 1e-3


def test_pairs_that_are_not_a_function_of_their_logits_are_refused(net_of, rows_of):
    model, (ids_S,) = net_of("rloo"), rows_of(1, S)
    found = row_of(model, ids_S)
    losses = model.estimator.losses
    model.estimator.losses = lambda outcome: (
        losses(outcome) | {"more": losses(outcome)["policy"]._replace(value=outcome.logp_BS.sum())}
    )
    with pytest.raises(ValueError, match="not a function of its logits"):
        draws.paired(model, found, RATE, {})


def test_batches_of_rows_are_independent(net_of, rows_of, columns_of):
    """Two rows together, every combination of both rows' pairs, against the rows alone."""
    model, ids_BS = net_of("rloo", window=2), rows_of(2, 4)
    columns = columns_of(model)
    rows = [left_out(model, row_of(model, ids_S), columns, 2) for ids_S in ids_BS]
    expected = moments.independent(rows)
    a_MS = row_of(model, ids_BS[0]).outcome.proposal.boundary_BS
    pi_BM = torch.stack([row_of(model, ids_S).pi_M for ids_S in ids_BS])
    mean_P, square = 0.0, 0.0
    for places in itertools.product(range(len(a_MS)), repeat=4):  # draw by draw, row by row
        pi = float(torch.stack([pi_BM[k % 2, place] for k, place in enumerate(places)]).prod())
        g_P = draws.together(model, ids_BS, RATE, a_MS[list(places)])[columns]
        mean_P, square = mean_P + pi * g_P, square + pi * g_P.square().sum()
    torch.testing.assert_close(expected.mean_P, mean_P, rtol=1e-9, atol=1e-12)
    variance = float(square - mean_P.square().sum())
    assert expected.variance == pytest.approx(variance, rel=1e-9)
