"""Dynamic pooling against float64 loops: sampling, segments, the gradient's path, the prior."""

import math

import pytest
import torch

from rltok_core.boundaries.contract import Outcome
from rltok_core.boundaries.pooling import Pooling
from rltok_core.data.batch import Batch
from rltok_core.data.stream import RandomStream

D, S = 6, 40
LENGTHS = [40, 23, 2, 1]


def make(seed=0, constant=None):
    generator = torch.Generator().manual_seed(seed)
    ids_BS = torch.randint(64, 320, (len(LENGTHS), S), generator=generator)
    stream = RandomStream([seed * 10 + row for row in range(len(LENGTHS))], constant=constant)
    batch = Batch(ids_BS, torch.tensor(LENGTHS), stream)
    x_BSD = torch.randn(len(LENGTHS), S, D, generator=generator, dtype=torch.float64)
    pooling = Pooling({"temperature": 1.0, "prior_weight": 1.0}, D, 0.2, S).double()
    with torch.no_grad():
        for weight in pooling.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator, dtype=torch.float64))
    return pooling, batch, x_BSD.requires_grad_()


def logit_loop(pooling, x_D):
    first, _, last = pooling.predictor
    hidden = [
        max(0.0, sum(w * v for w, v in zip(row, x_D, strict=True)) + b)
        for row, b in zip(first.weight.tolist(), first.bias.tolist(), strict=True)
    ]
    row = last.weight[0].tolist()
    return sum(w * h for w, h in zip(row, hidden, strict=True)) + last.bias.item()


def test_boundaries_are_drawn_with_the_predictors_probability():
    pooling, batch, x_BSD = make()
    proposal = pooling.propose(x_BSD, batch, 0.2)
    u_BS = batch.stream.uniform(S)
    for row, length in enumerate(LENGTHS):
        for i in range(length):
            p = 1 / (1 + math.exp(-logit_loop(pooling, x_BSD[row, i].tolist())))
            forced = i in (0, length - 1)
            assert proposal.boundary_BS[row, i].item() == (forced or u_BS[row, i].item() < p)
            assert proposal.prob_BS[row, i].item() == pytest.approx(1.0 if forced else p)
        assert not proposal.boundary_BS[row, length:].any()
    assert 5 < proposal.boundary_BS[0].sum() < 36


class GivenStream:
    """Hands out one tensor of uniforms."""

    def __init__(self, u_BS):
        self.u_BS = u_BS

    def uniform(self, length):
        return self.u_BS


def test_the_relaxed_sample_has_the_density_of_torchs_relaxed_bernoulli():
    """Change of variables: the slope of the sample by its uniform is one over the density."""
    pooling, batch, x_BSD = make(1)
    u_BS = batch.stream.uniform(S).double().requires_grad_()
    proposal = pooling.propose(x_BSD, batch.with_stream(GivenStream(u_BS)), 0.2)
    soft_BS = proposal.extra["soft_BS"]
    (slope_BS,) = torch.autograd.grad(soft_BS.sum(), u_BS)
    logit_BS = pooling.predictor(x_BSD).squeeze(-1)
    relaxed = torch.distributions.RelaxedBernoulli(torch.tensor(1.0).double(), logits=logit_BS)
    assert torch.allclose(-1 / slope_BS, relaxed.log_prob(soft_BS).exp(), rtol=1e-6)


def test_a_constant_half_is_the_threshold():
    pooling, batch, x_BSD = make(2, constant=0.5)
    proposal = pooling.propose(x_BSD, batch, 0.2)
    expected = torch.sigmoid(pooling.predictor(x_BSD).squeeze(-1)) > 0.5
    assert torch.equal(proposal.boundary_BS & proposal.free_BS, expected & proposal.free_BS)


def segments(boundary_S, length):
    """Lists of positions; a boundary ends its segment."""
    out, current = [], []
    for i in range(length):
        current.append(i)
        if boundary_S[i]:
            out.append(current)
            current = []
    assert not current
    return out


def test_tokens_are_means_of_segments_that_end_at_boundaries():
    pooling, batch, x_BSD = make(3)
    proposal = pooling.propose(x_BSD, batch, 0.2)
    tokens = pooling.to_tokens(x_BSD, proposal)
    y_BSD = pooling.to_bytes(tokens.x_BTD, tokens, proposal)
    for row, length in enumerate(LENGTHS):
        parts = segments(proposal.boundary_BS[row].tolist(), length)
        assert tokens.valid_BT[row].sum() == len(parts)
        assert not tokens.x_BTD[row, len(parts) :].any()
        for t, part in enumerate(parts):
            mean = sum(x_BSD[row, i].detach() for i in part) / len(part)
            assert torch.allclose(tokens.x_BTD[row, t], mean, atol=1e-12)
            assert tokens.position_BT[row, t] == part[-1]
            # its output: at its own last position, which predicts the next segment's first byte
            nexts = parts[t + 1][:-1] if t + 1 < len(parts) else []
            for i in [part[-1], *nexts]:
                assert torch.equal(y_BSD[row, i], tokens.x_BTD[row, t])


def test_gradient_reaches_boundaries_through_soft_segment_shares():
    """Nawrot's path, by hand: byte i weighs 1 - (s - c_i) in its segment s, where c_i is the
    (differentiable) number of boundaries before i; other segments' weights are cut to 0."""
    pooling, batch, x_BSD = make(4)
    proposal = pooling.propose(x_BSD.detach(), batch, 0.2)
    soft_BS = proposal.extra["soft_BS"].detach().requires_grad_()
    proposal.extra["soft_BS"] = soft_BS
    tokens = pooling.to_tokens(x_BSD.detach(), proposal)
    w_BTD = torch.randn(tokens.x_BTD.shape, generator=torch.Generator().manual_seed(0)).double()
    (tokens.x_BTD * w_BTD).sum().backward()
    for row, length in enumerate(LENGTHS):
        parts = segments(proposal.boundary_BS[row].tolist(), length)
        for j in range(S):
            expected = 0.0
            if proposal.free_BS[row, j]:
                for t, part in enumerate(parts):
                    mean = sum(x_BSD[row, i].detach() for i in part) / len(part)
                    for i in part:
                        if i > j:  # c_i counts j
                            move = (x_BSD[row, i].detach() - mean) / len(part)
                            expected += (move @ w_BTD[row, t]).item()
            assert soft_BS.grad[row, j].item() == pytest.approx(expected, abs=1e-10)
    assert (soft_BS.grad[0] != 0).sum() > 5


def test_the_prior_is_a_binomial_of_the_realised_count():
    pooling, batch, x_BSD = make(5)
    proposal = pooling.propose(x_BSD, batch, 0.2)
    zero_BS = torch.zeros(batch.ids_BS.shape)
    expected = 0.0
    for row, n in enumerate(LENGTHS):
        k = int(proposal.boundary_BS[row].sum())
        p = math.comb(n, k) * 0.3**k * 0.7 ** (n - k)
        expected -= math.log(p) / n / len(LENGTHS)
    weight, value = pooling.losses(Outcome(batch, proposal, zero_BS, zero_BS, 0.3))["prior"]
    assert weight == 1.0 and value.item() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(("rate", "sign"), [(0.02, 1), (0.98, -1)])
def test_the_priors_gradient_moves_the_count_to_the_target(rate, sign):
    pooling, batch, x_BSD = make(5)
    proposal = pooling.propose(x_BSD, batch, 0.2)
    zero_BS = torch.zeros(batch.ids_BS.shape)
    value = pooling.losses(Outcome(batch, proposal, zero_BS, zero_BS, rate))["prior"].value
    (slope,) = torch.autograd.grad(value, proposal.extra["soft_BS"])
    assert slope[0][proposal.free_BS[0]].sign().unique().tolist() == [sign]
    assert not slope[~proposal.free_BS].any()


def test_rate_bias_is_added_to_the_logit():
    pooling, batch, x_BSD = make(6)
    plain = pooling.propose(x_BSD, batch, 0.2)
    pooling.rate_bias.fill_(1.5)
    moved = pooling.propose(x_BSD, batch, 0.2)
    assert torch.allclose(moved.logit_BS, plain.logit_BS + 1.5)
    assert moved.boundary_BS.sum() > plain.boundary_BS.sum()
