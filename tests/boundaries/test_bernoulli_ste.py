"""The straight-through policy: samples as the score function draws them, gradient by a loop."""

from pathlib import Path

import pytest
import torch

from rltok_core.boundaries.bernoulli_ste import BernoulliSte
from rltok_core.boundaries.contract import Outcome
from rltok_core.boundaries.score_function import ScoreFunction
from rltok_core.config.strict import read_yaml
from rltok_core.data.batch import Batch
from rltok_core.data.stream import RandomStream

ESTIMATORS = Path(__file__).parents[2] / "configs/estimators"
D, S, RATE, LENGTHS = 6, 14, 0.3, [14, 9, 2, 1]


def make(cls, name, window):
    params = read_yaml(ESTIMATORS / f"{name}.yaml")["params"] | {"window": window}
    torch.manual_seed(5)
    estimator = cls(params, D, RATE, S).double()
    with torch.no_grad():
        estimator.policy.weight.mul_(40)  # so that earlier boundaries matter
    return estimator


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(0)
    ids_BS = torch.randint(64, 320, (len(LENGTHS), S), generator=generator)
    return Batch(ids_BS, torch.tensor(LENGTHS), RandomStream(list(range(len(LENGTHS)))))


@pytest.fixture
def x_BSD():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(len(LENGTHS), S, D, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("window", [1, 3])
def test_policy_and_target_term_are_the_score_functions(window, batch, x_BSD):
    ste, sf = (
        make(BernoulliSte, "bernoulli_ste", window),
        make(ScoreFunction, "score_function", window),
    )
    assert ste.state_dict().keys() == sf.state_dict().keys()
    a, b = (estimator.propose(x_BSD, batch, RATE) for estimator in (ste, sf))
    for field in ("boundary_BS", "prob_BS", "free_BS", "logit_BS"):
        assert torch.equal(getattr(a, field), getattr(b, field))
    logp_BS = torch.zeros(len(LENGTHS), S)
    terms = [e.losses(Outcome(batch, a, logp_BS, logp_BS, RATE)) for e in (ste, sf)]
    assert terms[0].keys() == {"target"} and terms[0]["target"] == terms[1]["target"]


@pytest.mark.parametrize("window", [1, 3])
def test_gradient_of_the_policy_against_a_loop(window, batch, x_BSD):
    """dL/dp_i = +-<g_i, Y_t(i)>, then the chain through sigmoid, soft cap and the linear map."""
    estimator = make(BernoulliSte, "bernoulli_ste", window)
    generator = torch.Generator().manual_seed(2)
    proposal = estimator.propose(x_BSD, batch, RATE)
    tokens = estimator.to_tokens(x_BSD, proposal)
    y_BTD = torch.randn(tokens.x_BTD.shape, generator=generator, dtype=torch.float64)
    g_BSD = torch.randn(x_BSD.shape, generator=generator, dtype=torch.float64)
    z_BSD = estimator.to_bytes(y_BTD, tokens, proposal)
    (z_BSD * g_BSD).sum().backward()

    expected_wD = torch.zeros(window, D, dtype=torch.float64)
    both = set()
    for row, length in enumerate(LENGTHS):
        a = proposal.boundary_BS[row].tolist()
        for i in range(length):
            token = sum(a[: i + 1]) - 1
            assert torch.equal(z_BSD[row, i], y_BTD[row, token])  # forward: plain distribute
            if i in (0, length - 1):
                continue
            both.add(a[i])
            slope_p = (1 if a[i] else -1) * float(g_BSD[row, i] @ y_BTD[row, token])
            p, logit = proposal.prob_BS[row, i].item(), proposal.logit_BS[row, i].item()
            slope_z = slope_p * p * (1 - p) * (1 - (logit / 6) ** 2)  # 6 tanh(z / 6)
            for k in range(1, window):
                if i - k >= 0 and a[i - k]:
                    expected_wD[k - 1] += slope_z * x_BSD[row, i] / 16
            expected_wD[window - 1] += slope_z * x_BSD[row, i] / 16
    assert both == {True, False}
    gap = estimator.policy.weight.grad - expected_wD
    assert expected_wD.abs().max() > 1e-3 and gap.abs().max() < 1e-12


def test_forced_boundaries_of_an_open_phase_carry_no_gradient(batch, x_BSD):
    estimator = make(BernoulliSte, "bernoulli_ste", 1)
    proposal = estimator.propose(x_BSD, batch, 1.0)
    proposal.boundary_BS, proposal.free_BS = batch.valid_BS, torch.zeros_like(batch.valid_BS)
    tokens = estimator.to_tokens(x_BSD, proposal)
    estimator.to_bytes(tokens.x_BTD, tokens, proposal).square().sum().backward()
    assert not estimator.policy.weight.grad.any()
