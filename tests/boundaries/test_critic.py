"""The critic: it starts as the paper's estimator, is unbiased, and fits the returns alone."""

import itertools
from pathlib import Path

import pytest
import torch

from rltok_core.boundaries.contract import Outcome
from rltok_core.boundaries.critic import Critic
from rltok_core.boundaries.score_function import ScoreFunction
from rltok_core.config.schema import ModelConfig
from rltok_core.config.strict import read_yaml
from rltok_core.data.batch import Batch
from rltok_core.data.stream import RandomStream
from rltok_core.data.vocabulary import BOS
from rltok_core.model.unet import UNet, target_logp

ESTIMATORS = Path(__file__).parents[2] / "configs/estimators"
D, RATE = 8, 0.3


def make(cls, name, seq_len, **changes):
    params = read_yaml(ESTIMATORS / f"{name}.yaml")["params"] | changes
    torch.manual_seed(3)
    return cls(params, D, RATE, seq_len).double()


def scrambled(critic):
    with torch.no_grad():
        critic.value.weight.normal_(generator=torch.Generator().manual_seed(4))
        critic.value.bias.fill_(0.7)
    return critic


def make_batch(lengths):
    generator = torch.Generator().manual_seed(0)
    ids_BS = torch.randint(160, 170, (len(lengths), max(lengths)), generator=generator)
    ids_BS[:, 0] = BOS
    return Batch(ids_BS, torch.tensor(lengths), RandomStream(list(range(len(lengths)))))


def make_outcome(estimator, batch):
    generator = torch.Generator().manual_seed(1)
    shape = batch.ids_BS.shape
    x_BSD = torch.randn(*shape, D, generator=generator, dtype=torch.float64, requires_grad=True)
    logp_BS, early_BS = (
        -torch.rand(shape, generator=generator, dtype=torch.float64) * batch.scored_BS
        for _ in range(2)
    )
    return x_BSD, Outcome(batch, estimator.propose(x_BSD, batch, RATE), logp_BS, early_BS, RATE)


@pytest.mark.parametrize("changes", [{}, {"gamma": 1.0, "window": 1}, {"batch_relative": False}])
def test_at_its_start_it_is_the_papers_estimator(changes):
    batch = make_batch([14, 9, 2, 1])
    terms = []
    for cls, name in ((Critic, "critic"), (ScoreFunction, "score_function")):
        estimator = make(cls, name, 14, **changes)
        terms.append(estimator.losses(make_outcome(estimator, batch)[1]))
    for name in ("policy", "target"):
        torch.testing.assert_close(terms[0][name].value, terms[1][name].value, rtol=1e-9, atol=0)
        assert terms[0][name].weight == terms[1][name].weight


@pytest.mark.parametrize("early", [True, False])
def test_value_loss_against_a_loop_and_its_gradient_stays_with_the_critic(early):
    lengths, gamma, horizon = [12, 7, 2, 1], 0.9, 10.0
    critic = scrambled(
        make(Critic, "critic", 12, gamma=gamma, batch_relative=False, early_exit_input=early)
    )
    x_BSD, outcome = make_outcome(critic, make_batch(lengths))
    term = critic.losses(outcome)["value"]
    squares = []
    for row, length in enumerate(lengths):
        for i in range(length - 1):
            x_D = x_BSD[row, i].detach()
            state = (x_D - x_D.mean()) / (x_D.var(correction=0) + 1e-5).sqrt()
            later = range(i, length - 1)
            g, e = (
                sum(gamma ** (k - i) * float(logp_BS[row, k]) for k in later) / horizon
                for logp_BS in (outcome.logp_BS, outcome.logp_early_BS)
            )
            inputs = [*state.tolist(), e] if early else state.tolist()
            weights = critic.value.weight[0].tolist()
            correction = sum(u * s for u, s in zip(weights, inputs, strict=True)) + 0.7
            squares.append((g - (e if early else 0.0) - correction / 16) ** 2)
    assert term.value.item() == pytest.approx(sum(squares) / len(squares), rel=1e-9)
    term.value.backward()
    assert critic.value.weight.grad.abs().min() > 0
    assert x_BSD.grad is None and critic.policy.weight.grad is None


@pytest.mark.parametrize("early", [True, False])
def test_the_policys_gradient_is_unbiased_by_enumeration(early):
    """gamma 1, no batch baseline, any critic: E[gradient] = gradient of the exact expectation."""
    length, window = 7, 2
    changes = {"window": window, "gamma": 1.0, "batch_relative": False, "early_exit_input": early}
    critic = scrambled(make(Critic, "critic", length, **changes))
    config = ModelConfig(size="t", d_model=D, n_heads=2, n_down=1, n_mid=1, n_up=1, window=4)
    net, batch = UNet(config, critic, seed=0).double(), make_batch([length])

    class Given(RandomStream):
        def uniform(self, length, channel="boundary"):
            return u_BS

    expected_loss = expected_term = 0.0
    for bits in itertools.product([0, 1], repeat=length - 2):
        a_BS = torch.tensor([[1, *bits, 1]])
        u_BS = torch.where(a_BS > 0, 0.0, 1 - 2.0**-24)
        prediction = net(batch.with_stream(Given([0])), RATE)
        proposal = prediction.proposal
        assert torch.equal(proposal.boundary_BS.long(), a_BS)
        p_BS = proposal.prob_BS
        pi = torch.where(a_BS > 0, p_BS, 1 - p_BS)[proposal.free_BS].prod()
        logp_BS, early_BS = target_logp(prediction, batch)
        expected_loss = expected_loss - pi * logp_BS.detach().sum()
        term = critic.losses(Outcome(batch, proposal, logp_BS, early_BS, RATE))["policy"]
        expected_term = expected_term + pi.detach() * term.value * length
    weight = critic.policy.weight
    (exact,) = torch.autograd.grad(expected_loss, weight, retain_graph=True)
    (estimated,) = torch.autograd.grad(expected_term, weight)
    assert exact.abs().max() > 1e-6
    assert (exact - estimated).abs().max() < 1e-9
