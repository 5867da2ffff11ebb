"""disarm: factors against the paper's formula and against the equations that they solve.

With the whole U-Net: tests/gradlab/test_draws.py.
"""

import itertools

import pytest
import torch

from rltok_core.boundaries.disarm import MARGIN, antithetic_weights


def law(p, q):
    """(a, b) -> probability, for a = [u < p], b = [1 - u < q]."""
    both = max(0.0, p + q - 1)
    return {(1, 1): both, (1, 0): p - both, (0, 1): q - both, (0, 0): 1 - p - q + both}


def weights(a, b, p, q, same, gain_a, gain_b):
    return [
        w.item()
        for w in antithetic_weights(
            *(torch.tensor([bool(v)]) for v in (a, b)),
            *(torch.tensor([v], dtype=torch.float64) for v in (p, q)),
            torch.tensor([same]),
            *(torch.tensor([v], dtype=torch.float64) for v in (gain_a, gain_b)),
        )
    ]


@pytest.mark.parametrize("p", [0.07, 0.4, 0.5, 0.83])
def test_one_history_is_disarm_as_published(p):
    """1/2 (f(b) - f(b')) (-1)^b' [b != b'] sigmoid(|logit|), Dong et al. 2020, equation 8."""
    for a, b in itertools.product((0, 1), repeat=2):
        logit = torch.logit(torch.tensor(p, dtype=torch.float64))
        published = 0.5 * (1.7 - 0.4) * (-1) ** b * (a != b) * torch.sigmoid(logit.abs()).item()
        assert sum(weights(a, b, p, p, True, 1.7, 0.4)) == pytest.approx(published, abs=1e-12)


SOME = (0.04, 0.3, 0.55, 0.9)
HISTORIES = [(True, p, p) for p in SOME] + [(False, p, q) for p in SOME for q in SOME]


@pytest.mark.parametrize("same, p, q", HISTORIES)
def test_the_mean_is_the_gradient_whatever_the_histories_promise(same, p, q):
    Q, R = (0.3, -1.1), (2.0, 0.7)  # expected returns after choice 0, 1 of either draw
    first = second = 0.0
    for (a, b), probability in law(p, q).items():
        c, d = weights(a, b, p, q, same, Q[a], R[b])
        first, second = first + probability * c, second + probability * d
    wanted = 0.5 * p * (1 - p) * (Q[1] - Q[0]), 0.5 * q * (1 - q) * (R[1] - R[0])
    if same:  # dl and dl' are one
        assert first + second == pytest.approx(sum(wanted), abs=1e-12)
    else:
        assert (first, second) == pytest.approx(wanted, abs=1e-12)


def test_no_factor_grows_without_bound_where_the_probabilities_add_up_to_one():
    for gap in (0.0, 1e-9, MARGIN / 2, MARGIN, 0.3):
        for a, b in itertools.product((0, 1), repeat=2):
            found = weights(a, b, 0.35, 0.65 - gap, False, 1.0, -1.0)
            assert max(map(abs, found)) <= 0.25 / MARGIN
