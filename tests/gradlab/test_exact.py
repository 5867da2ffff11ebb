"""The enumerated expectation: its gradient against finite differences and plain autograd."""

import itertools

import pytest
import torch

from rltok_core.data.stream import RandomStream
from rltok_core.gradlab.exact import (
    NotEnumerable,
    all_sequences,
    batch_of,
    exact_gradient,
    expected_loss,
    log_probability,
    outcome_of,
    per_sequence_gradients,
)
from rltok_core.gradlab.moments import alone
from rltok_core.model.unet import target_logp

RATE = 0.3
STOCHASTIC = ["score_function", "score_function_w1", "pooling"]
each = pytest.mark.parametrize("name", STOCHASTIC)


@torch.no_grad()
def by_finite_differences(value, parameter, step=1e-5):
    """Central differences of value() by each entry, in place."""
    entries, gradient = parameter.data.view(-1), []
    for i in range(len(entries)):
        before = entries[i].item()
        values = []
        for shifted in (before + step, before - step):
            entries[i] = shifted
            values.append(value().item())
        entries[i] = before
        gradient.append((values[0] - values[1]) / (2 * step))
    return torch.tensor(gradient, dtype=torch.float64)


def test_all_sequences():
    expected = [[1, *bits, 1] for bits in itertools.product([0, 1], repeat=4)]
    assert all_sequences(6).int().tolist() == expected
    assert all_sequences(3).int().tolist() == [[1, 0, 1], [1, 1, 1]]
    assert all_sequences(2).int().tolist() == [[1, 1]]


@each
def test_probabilities_sum_to_one_and_samples_follow_them(name, net_of, rows_of):
    model, ids_BS = net_of(name), rows_of(1, 5)
    a_MS = all_sequences(5)
    outcome = outcome_of(model, batch_of(ids_BS[0], a_MS), RATE, a_MS)
    pi_M = log_probability(outcome.proposal).exp().detach()
    assert pi_M.sum().item() == pytest.approx(1, abs=1e-12)
    draws = 4000
    batch = batch_of(ids_BS[0], a_MS[:1].expand(draws, -1)).with_stream(
        RandomStream(list(range(draws)))
    )
    drawn_BS = model(batch, RATE).proposal.boundary_BS
    share_M = (drawn_BS[:, None] == a_MS).all(2).double().mean(0)
    assert (share_M - pi_M).abs().max() < 4.5 * (0.25 / draws) ** 0.5


@each
def test_enumerated_gradient_is_autograd_of_a_loop(name, net_of, rows_of):
    """Sequence by sequence, loss held fixed in the score and boundaries in the path."""
    model, ids_BS = net_of(name), rows_of(2, 5)
    parameters = list(model.parameters())
    total = 0.0
    for ids_S in ids_BS:
        for a_S in all_sequences(5):
            batch = batch_of(ids_S, a_S[None])
            prediction = model(batch, RATE)
            nats = -target_logp(prediction, batch)[0].sum()
            p_S, free_S = prediction.proposal.prob_BS[0], prediction.proposal.free_BS[0]
            pi = torch.where(a_S, p_S, 1 - p_S)[free_S].prod()
            total = total + pi * nats.detach()
            if name != "pooling":  # has no straight-through path to leave out
                total = total + pi.detach() * (nats - nats.detach())
    gradient = torch.autograd.grad(total / ids_BS.numel(), parameters, allow_unused=True)
    found_P, place = exact_gradient(model, ids_BS, RATE).mean(0), 0
    for (key, parameter), g in zip(model.named_parameters(), gradient, strict=True):
        part = found_P[place : place + parameter.numel()].view_as(parameter)
        place += parameter.numel()
        if name == "pooling" and not key.startswith("estimator."):
            continue
        assert (part - (torch.zeros_like(part) if g is None else g)).abs().max() < 1e-12, key


@each
def test_enumerated_gradient_equals_finite_differences(name, net_of, rows_of):
    """No backward pass at all, so that no straight-through path can be mistaken for real."""
    model, ids_BS = net_of(name), rows_of(1, 4)
    exact_P = exact_gradient(model, ids_BS, RATE).mean(0)
    place = 0
    for key, parameter in model.named_parameters():
        part_P = exact_P[place : place + parameter.numel()]
        place += parameter.numel()
        if parameter.numel() <= 72 and key.startswith(("estimator.", "down.0.attention.out")):
            found_P = by_finite_differences(lambda: expected_loss(model, ids_BS, RATE), parameter)
            assert (found_P - part_P).abs().max() < 1e-8, key


@pytest.mark.parametrize("name", [*STOCHASTIC, "hnet"])
def test_gradients_of_all_sequences_at_once_equal_one_at_a_time(name, net_of, rows_of):
    model, ids_BS = net_of(name), rows_of(1, 6)
    if name == "hnet":
        with pytest.raises(NotEnumerable):
            per_sequence_gradients(model, ids_BS[0], RATE)
        return
    changes = {} if name == "pooling" else {"batch_relative": False}
    model = net_of(name, **changes)
    found = per_sequence_gradients(model, ids_BS[0], RATE)
    for a_S, g_P in zip(all_sequences(6), found.loss_MP, strict=True):
        gap = alone(model, ids_BS[0], RATE, a_S[None]) - g_P
        assert gap.abs().max() < 1e-12
