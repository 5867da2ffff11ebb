"""off_policy: whose boundaries are drawn when, and the importance weights by enumeration."""

from pathlib import Path

import pytest
import torch

from rltok_core.boundaries.contract import Outcome
from rltok_core.boundaries.off_policy import OffPolicy, importance
from rltok_core.boundaries.score_function import ScoreFunction
from rltok_core.config.strict import read_yaml
from rltok_core.data.batch import Batch
from rltok_core.data.stream import RandomStream

CONFIGS = Path(__file__).parents[2] / "configs/estimators"


def make(cls, name, **changes):
    torch.manual_seed(0)
    estimator = cls(read_yaml(CONFIGS / f"{name}.yaml")["params"] | changes, 8, 0.3, 64)
    with torch.no_grad():
        estimator.policy.weight.mul_(60)
    return estimator.double()


@pytest.fixture
def x_BSD():
    return torch.randn(6, 64, 8, generator=torch.Generator().manual_seed(1)).double()


@pytest.fixture
def batch():
    length_B = torch.tensor([64, 64, 64, 64, 40, 2])
    return Batch(torch.full((6, 64), 70), length_B, RandomStream(list(range(6))))


@pytest.mark.parametrize("window", [1, 4])
def test_the_policy_acts_from_random_until_on_and_in_evaluation(x_BSD, batch, window):
    ours = make(OffPolicy, "off_policy", window=window, random_until=0.25)
    theirs = make(ScoreFunction, "score_function", window=window)
    expected = theirs.propose(x_BSD, batch, 0.3)
    for progress in (0.25, 0.6, 1.0):
        found = ours.propose(x_BSD, batch.at(progress), 0.3)
        assert found.drawn_BS is None
        assert torch.equal(found.boundary_BS, expected.boundary_BS)
        logp_BS = torch.randn(6, 64, generator=torch.Generator().manual_seed(2)).double()
        terms = [
            e.losses(Outcome(batch, p, logp_BS, 0 * logp_BS, 0.3))["policy"].value
            for e, p in ((ours, found), (theirs, expected))
        ]
        assert torch.equal(*terms)
    random = ours.propose(x_BSD, batch.at(0.24), 0.3)
    assert not torch.equal(random.boundary_BS, expected.boundary_BS)


def test_random_boundaries_have_the_rate_and_know_nothing_of_the_text(x_BSD, batch):
    ours = make(OffPolicy, "off_policy", random_until=1.0)
    many = Batch(torch.full((400, 64), 70), torch.full((400,), 64), RandomStream(list(range(400))))
    x = x_BSD[:1].expand(400, -1, -1)
    found = ours.propose(x, many.at(0.0), 0.3).boundary_BS
    assert found.double().mean().item() == pytest.approx(0.3, abs=0.01)
    again = ours.propose(-3 * x, many.at(0.0), 0.3).boundary_BS
    assert torch.equal(found, again)
    short = ours.propose(x_BSD, batch.at(0.0), 0.3)
    assert short.boundary_BS[4].sum() == short.boundary_BS[4, :40].sum() and short.boundary_BS[5, 1]


def test_importance_weights_take_a_mean_under_random_draws_to_one_under_the_policy(x_BSD, batch):
    """sum over both choices of rate(a) x ratio(a) x f(a) = sum of pi(a) f(a), at each position."""
    ours = make(OffPolicy, "off_policy", window=1, random_until=1.0)
    proposal = ours.propose(x_BSD, batch.at(0.0), 0.3)
    drawn, own = proposal.drawn_BS, proposal.prob_BS
    assert not torch.allclose(drawn, own)
    mean = 0.0
    for choice, value in ((True, 2.5), (False, -0.5)):
        proposal.boundary_BS = torch.full_like(batch.valid_BS, choice)
        ratio = importance(Outcome(batch, proposal, own, own, 0.3))
        mean = mean + (drawn if choice else 1 - drawn) * ratio * value
    expected = own * 2.5 - (1 - own) * 0.5
    torch.testing.assert_close(mean[proposal.free_BS], expected[proposal.free_BS].detach())


def test_shares_outside_0_to_1_are_refused():
    with pytest.raises(ValueError, match="random_until"):
        make(OffPolicy, "off_policy", random_until=1.5)
