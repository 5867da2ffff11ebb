"""The paper's policy: sampling against a loop, gradient against enumeration (promise 8)."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from rltok_core.boundaries.contract import Outcome, forced_BS
from rltok_core.boundaries.sampling import sample_boundaries
from rltok_core.boundaries.score_function import ScoreFunction
from rltok_core.config.schema import ModelConfig
from rltok_core.config.strict import read_yaml
from rltok_core.data.batch import Batch
from rltok_core.data.stream import RandomStream
from rltok_core.data.vocabulary import BOS, N_SPECIAL
from rltok_core.model.unet import UNet, target_logp

YAML = Path(__file__).parents[2] / "configs/estimators/score_function.yaml"


def make(window=8, d_model=16, **changes) -> ScoreFunction:
    params = read_yaml(YAML)["params"] | {"window": window} | changes
    torch.manual_seed(3)
    return ScoreFunction(params, d_model, target_rate=0.3, seq_len=32)


class FixedStream(RandomStream):
    """Uniforms given outright: 0 draws a boundary, 1 - 2^-24 draws none."""

    def __init__(self, u_BS):
        super().__init__([0] * len(u_BS))
        self.u_BS = u_BS

    def uniform(self, length, channel="boundary"):
        return self.u_BS


def make_batch(n_rows, n_positions, seed=0, lengths=None, stream=None) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    ids_BS = torch.randint(97, 101, (n_rows, n_positions), generator=generator) + N_SPECIAL
    ids_BS[:, 0] = BOS
    length_B = torch.tensor(lengths or [n_positions] * n_rows)
    for row, length in enumerate(length_B):
        ids_BS[row, length:] = 0
    return Batch(ids_BS, length_B, stream or RandomStream(list(range(n_rows))))


@pytest.mark.parametrize("window", [1, 2, 3, 8])
def test_samples_equal_a_loop_with_the_same_uniforms(window):
    batch = make_batch(5, 40, lengths=[40, 1, 2, 17, 40])
    estimator = make(window)
    with torch.no_grad():
        # large weights, so that earlier boundaries matter
        estimator.policy.weight.mul_(60)
    x_BSD = torch.randn(5, 40, 16, generator=torch.Generator().manual_seed(1))
    proposal = estimator.propose(x_BSD, batch, 0.3)
    u_BS = batch.stream.uniform(40).double().numpy()
    v_BSw = (x_BSD.double() @ estimator.policy.weight.detach().double().T).numpy() / 16
    forced = forced_BS(batch).numpy()
    for row, length in enumerate(batch.length_B.tolist()):
        a = [0] * 40
        for i in range(length):
            z = v_BSw[row, i, -1] + math.log(0.3 / 0.7)
            z += sum(v_BSw[row, i, k - 1] * a[i - k] for k in range(1, window) if i - k >= 0)
            p = 1 / (1 + math.exp(-6 * math.tanh(z / 6)))
            a[i] = 1 if forced[row, i] else int(u_BS[row, i] < p)
            if not forced[row, i]:
                assert abs(proposal.prob_BS[row, i].item() - p) < 1e-5
        assert proposal.boundary_BS[row].int().tolist() == a


def test_scan_without_cap_or_history_is_a_threshold():
    v_BSw = torch.zeros(1, 6, 3)
    u_BS = torch.tensor([[0.1, 0.2, 0.49, 0.51, 0.9, 0.0]])
    none = torch.zeros(1, 6, dtype=torch.bool)
    a_BS = sample_boundaries(v_BSw, u_BS, none, torch.tensor([5]), torch.tensor(0.0), 0.0)
    assert a_BS.tolist() == [[True, True, True, False, False, False]]


def _enumerate(net, estimator, batch, n_positions):
    """Exact expected L_auto (sum over bytes) and the expected policy term, over all boundaries."""
    expected_loss, expected_term = 0.0, 0.0
    for bits in itertools.product([0, 1], repeat=n_positions - 2):
        a = torch.tensor([[1, *bits, 1]])
        fixed = batch.with_stream(FixedStream(torch.where(a > 0, 0.0, 1 - 2.0**-24)))
        prediction = net(fixed, 0.3)
        proposal = prediction.proposal
        assert proposal.boundary_BS.int().tolist() == a.tolist()
        logp_BS, logp_early_BS = target_logp(prediction, fixed)
        p_BS = proposal.prob_BS
        free = proposal.free_BS
        pi = torch.where(a > 0, p_BS, 1 - p_BS)[free].prod()
        expected_loss = expected_loss - pi * logp_BS.detach().sum()
        outcome = Outcome(fixed, proposal, logp_BS, logp_early_BS, 0.3)
        term = estimator.losses(outcome)["policy"].value * batch.valid_BS.sum()
        expected_term = expected_term + pi.detach() * term
    return expected_loss, expected_term


@pytest.mark.parametrize("window", [1, 3])
@pytest.mark.parametrize("early_exit", [True, False])
def test_policy_gradient_is_unbiased_by_enumeration(window, early_exit):
    """Promise 8: gamma 1, no batch baseline: E[gradient] = gradient of the exact expectation."""
    estimator = make(window, gamma=1.0, batch_relative=False, early_exit_reward=early_exit)
    config = ModelConfig(size="t", d_model=16, n_heads=2, n_down=1, n_mid=1, n_up=1, window=4)
    net = UNet(config, estimator, seed=0).double()
    batch = make_batch(1, 8)
    expected_loss, expected_term = _enumerate(net, estimator, batch, 8)
    (exact,) = torch.autograd.grad(expected_loss, estimator.policy.weight, retain_graph=True)
    (estimated,) = torch.autograd.grad(expected_term, estimator.policy.weight)
    assert exact.abs().max() > 1e-5
    assert (exact - estimated).abs().max() < 1e-9


@pytest.mark.parametrize("fault", ["discounted", "shifted", "flipped"])
def test_enumeration_catches_wrong_gradients(fault, monkeypatch):
    """The check above can fail: a discount, a reward one position off, a flipped sign."""
    gamma = 0.5 if fault == "discounted" else 1.0
    estimator = make(1, gamma=gamma, batch_relative=False)
    config = ModelConfig(size="t", d_model=16, n_heads=2, n_down=1, n_mid=1, n_up=1, window=4)
    net = UNet(config, estimator, seed=0).double()
    right = estimator.reward
    wrong = {
        "discounted": right,
        "shifted": lambda outcome: torch.roll(right(outcome), -1, dims=1),
        "flipped": lambda outcome: -right(outcome),
    }[fault]
    monkeypatch.setattr(estimator, "reward", wrong)
    expected_loss, expected_term = _enumerate(net, estimator, make_batch(1, 7), 7)
    (exact,) = torch.autograd.grad(expected_loss, estimator.policy.weight, retain_graph=True)
    (estimated,) = torch.autograd.grad(expected_term, estimator.policy.weight)
    assert (exact - estimated).abs().max() > 1e-6


def test_batch_relative_centres_each_position_without_padding():
    estimator = make(1)
    batch = make_batch(3, 6, lengths=[6, 4, 2])
    logp_BS = torch.arange(18.0).view(3, 6) * batch.scored_BS
    early_BS = torch.zeros(3, 6)
    reward_BS = estimator.reward(Outcome(batch, None, logp_BS, early_BS, 0.3))
    # position 0: 0, 6, 12 centred; position 1: 1 and 7 (row 2 has no target there), and so on
    expected = [[-6, -3, -3, 0, 0, 0], [0, 3, 3, 0, 0, 0], [6, 0, 0, 0, 0, 0]]
    assert reward_BS.tolist() == expected


def test_target_term_pushes_logits_towards_the_rate():
    estimator = make(1)
    batch = make_batch(2, 32)
    x_BSD = torch.zeros(2, 32, 16)
    outcome = Outcome(
        batch, estimator.propose(x_BSD, batch, 0.3), torch.zeros(2, 32), torch.zeros(2, 32), 0.1
    )
    term = estimator.losses(outcome)["target"]
    logit = 6 * math.tanh(math.log(0.3 / 0.7) / 6)
    mean = (30 / (1 + math.exp(-logit)) + 2) / 32
    np.testing.assert_allclose(term.value.item(), logit * (mean - 0.1), rtol=1e-5)
    assert term.weight == 0.01


def test_open_phase_gives_no_policy_gradient():
    estimator = make(1)
    batch = make_batch(2, 8)
    proposal = estimator.propose(torch.randn(2, 8, 16), batch, 1.0)
    proposal.boundary_BS, proposal.free_BS = batch.valid_BS, torch.zeros_like(batch.valid_BS)
    outcome = Outcome(batch, proposal, torch.randn(2, 8), torch.randn(2, 8), 1.0)
    total = sum(term.value for term in estimator.losses(outcome).values())
    total.backward()
    assert estimator.policy.weight.grad.abs().max() == 0
