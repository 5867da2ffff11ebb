"""rloo: the leave-one-out weights against loops. Its gradient: tests/gradlab/test_draws.py."""

import pytest
import torch

from rltok_core.boundaries.contract import Outcome, Proposal
from rltok_core.boundaries.rloo import Rloo
from rltok_core.data.batch import Batch
from rltok_core.data.stream import RandomStream

PARAMS = {
    "window": 1,
    "samples": 3,
    "gamma": 0.8,
    "lam_pi": 0.5,
    "lam_target": 0.0,
    "softcap": 6.0,
    "logit_scale": 16.0,
    "softcap_in_evaluation": True,
}


def test_each_draw_is_weighed_by_its_return_less_the_others_mean():
    samples, rows, length = 3, 2, 6
    estimator = Rloo(PARAMS, 4, 0.3, length)
    assert estimator.samples == samples
    batch = Batch(
        torch.full((rows, length), 70), torch.tensor([6, 4]), RandomStream([0, 1])
    ).repeated(samples)
    generator = torch.Generator().manual_seed(0)
    shape = (samples * rows, length)
    logp_BS = torch.randn(shape, generator=generator, dtype=torch.float64) * batch.scored_BS
    logit_BS = torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
    a_BS = torch.rand(shape, generator=generator) < 0.5
    free_BS = batch.valid_BS.clone()
    free_BS[:, 0] = False
    proposal = Proposal(a_BS, torch.sigmoid(logit_BS), free_BS, logit_BS)
    term = estimator.losses(Outcome(batch, proposal, logp_BS, torch.zeros(shape), 0.3))["policy"]
    assert term.weight == 0.5
    (found,) = torch.autograd.grad(term.value, logit_BS)

    def gain(sample, row, i):
        return sum(0.8 ** (k - i) * logp_BS[sample * rows + row, k].item() for k in range(i, 6))

    positions = samples * 10
    for sample in range(samples):
        for row, valid in enumerate((6, 4)):
            for i in range(length):
                others = [gain(j, row, i) for j in range(samples) if j != sample]
                weight = gain(sample, row, i) - sum(others) / 2
                place = (sample * rows + row, i)
                score = float(a_BS[place]) - torch.sigmoid(logit_BS[place]).item()
                expected = -weight * score / positions if 0 < i < valid else 0.0
                assert found[place].item() == pytest.approx(expected, abs=1e-12)


def test_one_draw_has_nothing_to_compare_with():
    with pytest.raises(ValueError, match="samples must be at least 2"):
        Rloo(PARAMS | {"samples": 1}, 4, 0.3, 8)
