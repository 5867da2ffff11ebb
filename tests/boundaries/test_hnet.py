"""H-Net's routing, de-chunking and ratio loss against float64 loops and another implementation."""

import math

import pytest
import torch

from rltok_core.boundaries.contract import Outcome, select
from rltok_core.boundaries.hnet import HNet, shift_logit
from rltok_core.data.batch import Batch
from rltok_core.data.stream import RandomStream

D, S = 8, 33
LENGTHS = [33, 20, 2, 1]


def make(seed=0, dtype=torch.float64, lengths=LENGTHS):
    generator = torch.Generator().manual_seed(seed)
    length_B = torch.tensor(lengths)
    ids_BS = torch.randint(64, 320, (len(lengths), S), generator=generator)
    batch = Batch(ids_BS, length_B, RandomStream(list(range(len(lengths)))))
    x_BSD = torch.randn(len(lengths), S, D, generator=generator, dtype=dtype)
    hnet = HNet({"ratio_weight": 0.03}, D, 0.2, S).to(dtype)
    with torch.no_grad():
        for weight in hnet.parameters():
            weight += 0.3 * torch.randn(D, D, generator=generator, dtype=dtype)
    return hnet, batch, x_BSD.requires_grad_()


def loop_probability(hnet, x_SD, length):
    """p_i of one row, position by position."""
    p = [1.0]
    for i in range(1, length):
        q = (hnet.query.weight @ x_SD[i - 1]).tolist()
        k = (hnet.key.weight @ x_SD[i]).tolist()
        dot = sum(a * b for a, b in zip(q, k, strict=True))
        norm = math.sqrt(sum(a * a for a in q)) * math.sqrt(sum(b * b for b in k))
        p.append((1 - dot / norm) / 2)
    p[length - 1] = 1.0
    return p


def test_the_published_start_is_the_identity():
    hnet = HNet({"ratio_weight": 0.03}, D, 0.2, S)
    assert torch.equal(hnet.query.weight, torch.eye(D))
    assert torch.equal(hnet.key.weight, torch.eye(D))


def test_routing_against_a_loop():
    hnet, batch, x_BSD = make()
    proposal = hnet.propose(x_BSD, batch, 0.2)
    for row, length in enumerate(LENGTHS):
        p = loop_probability(hnet, x_BSD[row].detach(), length)
        assert proposal.prob_BS[row, :length].tolist() == pytest.approx(p, abs=1e-12)
        expected = [v > 0.5 for v in p] + [False] * (S - length)
        assert proposal.boundary_BS[row].tolist() == expected
        assert not proposal.prob_BS[row, length:].any()
    assert 5 < proposal.boundary_BS[0].sum() < 30  # both kinds of positions were compared


def dechunk(hnet, batch, x_BSD):
    proposal = hnet.propose(x_BSD, batch, 0.2)
    tokens = hnet.to_tokens(x_BSD, proposal)
    return proposal, tokens, hnet.to_bytes(tokens.x_BTD * 2 + 1, tokens, proposal)


def test_dechunking_against_a_loop():
    hnet, batch, x_BSD = make(1)
    proposal, _, y_BSD = dechunk(hnet, batch, x_BSD)
    for row, length in enumerate(LENGTHS):
        p = loop_probability(hnet, x_BSD[row].detach(), length)
        z = torch.zeros(D, dtype=torch.float64)
        for i in range(length):
            if p[i] > 0.5:
                weight = min(max(p[i], 1e-4), 1 - 1e-4)
                z = weight * (x_BSD[row, i].detach() * 2 + 1) + (1 - weight) * z
            assert torch.allclose(y_BSD[row, i], z, atol=1e-12, rtol=0)


def test_the_straight_through_confidence_has_the_derivative_of_c():
    """Gradient of sum(w y) by hand: the moving average's by finite differences, plus dc/dp w z."""
    hnet, batch, x_BSD = make(2)
    proposal = hnet.propose(x_BSD, batch, 0.2)
    p_BS = proposal.prob_BS.detach().requires_grad_()
    proposal.prob_BS = p_BS
    tokens = select(x_BSD.detach(), proposal.boundary_BS)
    w_BSD = torch.randn(x_BSD.shape, generator=torch.Generator().manual_seed(3)).double()
    w_BSD = w_BSD * batch.valid_BS[..., None]

    def total(p):
        proposal.prob_BS = p
        return (hnet.to_bytes(tokens.x_BTD, tokens, proposal) * w_BSD).sum()

    total(p_BS).backward()
    proposal.prob_BS = p_BS.detach()
    z_BSD = hnet.to_bytes(tokens.x_BTD, tokens, proposal)
    confidence_BS = (z_BSD * w_BSD).sum(-1) * torch.where(proposal.boundary_BS, 1.0, -1.0)
    for row, i in [(0, 3), (0, 9), (0, 17), (1, 5), (1, 12)]:
        step = torch.zeros_like(p_BS)
        step[row, i] = 1e-6
        with torch.no_grad():
            average = (total(p_BS + step) - total(p_BS - step)) / 2e-6
        assert p_BS.grad[row, i].item() == pytest.approx(
            (average + confidence_BS[row, i]).item(), abs=1e-6
        )


def outcome(batch, proposal, rate):
    zero_BS = torch.zeros(batch.ids_BS.shape)
    return Outcome(batch, proposal, zero_BS, zero_BS, rate)


def test_ratio_loss_is_the_formula_and_its_gradient_steers_the_rate():
    hnet, batch, x_BSD = make()
    proposal = hnet.propose(x_BSD, batch, 0.2)
    weight, value = hnet.losses(outcome(batch, proposal, 0.2))["ratio"]
    valid = batch.valid_BS
    f = proposal.boundary_BS[valid].double().mean()
    g = proposal.prob_BS[valid].mean()
    n = 5
    assert weight == 0.03
    assert torch.allclose(value, n / (n - 1) * ((n - 1) * f * g + (1 - f) * (1 - g)))
    # d/dG = N/(N-1) (N F - 1): pushed down above the target, up below it
    for rate in (0.05, 0.2, 0.6, 0.9, 0.99):
        value = hnet.losses(outcome(batch, proposal, rate))["ratio"].value
        (slope,) = torch.autograd.grad(value, proposal.prob_BS, retain_graph=True)
        assert torch.isfinite(value) and slope[valid].sign().unique().item() == (
            1 if f > rate else -1
        )
    assert hnet.losses(outcome(batch, proposal, 1.0))["ratio"].value == 0


def test_forced_ends_carry_no_gradient():
    hnet, batch, x_BSD = make(4, lengths=[2, 1])
    proposal, tokens, y_BSD = dechunk(hnet, batch, x_BSD.detach())
    term = hnet.losses(outcome(batch, proposal, 0.2))["ratio"].value
    (y_BSD.sum() + term).backward()
    assert all(not w.grad.any() for w in hnet.parameters())


@pytest.mark.parametrize("bias", [-3.0, -0.5, 0.7, 4.0])
def test_rate_bias_is_added_to_the_logit(bias):
    p = torch.linspace(0.01, 0.99, 50, dtype=torch.float64)
    shifted = torch.sigmoid(torch.logit(p) + bias)
    assert torch.allclose(shift_logit(p, torch.tensor(bias).double()), shifted, atol=1e-14)


def test_no_bias_leaves_the_published_method_bit_for_bit():
    p = torch.rand(10_000, generator=torch.Generator().manual_seed(0)).requires_grad_()
    same = shift_logit(p, torch.zeros(()))
    assert torch.equal(same, p)
    (slope,) = torch.autograd.grad(same.sum(), p)
    assert torch.equal(slope, torch.ones_like(p))
    hnet, batch, x_BSD = make()
    rates = []
    for bias in (-2.0, 0.0, 2.0):
        hnet.rate_bias.fill_(bias)
        rates.append(hnet.propose(x_BSD, batch, 0.2).boundary_BS.sum().item())
    assert rates[0] < rates[1] < rates[2]


def test_against_h_net_dynamic_chunking():
    """lucidrains' package, where conventions agree: no padding, its own query is our key (it asks
    of x_i against x_{i-1}), identity inner network, and a start key that makes its first p ours."""
    import h_net_dynamic_chunking as package  # here: it takes seconds, and one test needs it

    hnet, batch, x_BSD = make(5, torch.float32, [S, S])
    x_BSD = x_BSD.detach().clone()
    x_BSD[1, 0] = x_BSD[0, 0]  # bos is one vector
    x_BSD.requires_grad_()
    theirs = package.DynamicSequenceChunker(
        D,
        target_avg_token_length=5.0,
        learning_rate_difference=1.0,
        straight_through_frac_vecs=False,
    )
    with torch.no_grad():
        weight = torch.cat([hnet.key.weight, hnet.query.weight])
        theirs.to_queries_keys.weight.copy_(weight)
        theirs.start_key_token.copy_(-(hnet.key.weight @ x_BSD[0, 0]))  # cosine -1: p = 1
    (down, up, loss), intermediates = theirs(x_BSD, return_intermediates=True)

    proposal = hnet.propose(x_BSD, batch, 0.2)
    # it doesn't force the last position: look at what lies before
    assert torch.allclose(proposal.prob_BS[:, :-1], intermediates.probs[:, :-1], atol=1e-6)
    mine = proposal.boundary_BS.clone()
    mine[:, -1] = intermediates.boundary_mask[:, -1]
    assert torch.equal(mine, intermediates.boundary_mask)

    tokens = hnet.to_tokens(x_BSD, proposal)
    y_BSD = hnet.to_bytes(tokens.x_BTD, tokens, proposal)
    # the clamp of p to 1 - 1e-4 is ours (and the paper's) alone
    assert torch.allclose(y_BSD[:, :-1], up(down)[:, :-1], atol=2e-3)
    w_BSD = torch.randn(x_BSD.shape, generator=torch.Generator().manual_seed(1))
    w_BSD[:, -1] = 0
    (grad,) = torch.autograd.grad((y_BSD * w_BSD).sum(), x_BSD, retain_graph=True)
    (expected,) = torch.autograd.grad((up(down) * w_BSD).sum(), x_BSD, retain_graph=True)
    assert torch.allclose(grad, expected, atol=5e-3)

    n, p, b = 5, intermediates.probs, intermediates.boundary_mask.float()
    f, g = b.mean(1), p.mean(1)
    by_row = n / (n - 1) * ((n - 1) * f * g + (1 - f) * (1 - g))
    assert torch.allclose(loss, 0.03 * by_row.mean())
