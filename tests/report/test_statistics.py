"""Intervals against closed forms, and the small cases that other people's code gets wrong."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from rltok_core.report.statistics import (
    MIN_TEST_PAIRS,
    document_bootstrap,
    estimate,
    paired,
    sign_flip_p,
    smallest_p,
)


def test_interval_of_two_seeds_is_the_closed_form():
    # with one degree of freedom t is Cauchy: t_{0.975} = tan(0.475 pi)
    low, high = 1.944, 1.969
    half = math.tan(0.475 * math.pi) * abs(high - low) / 2
    found = estimate([low, high])
    assert found.low == pytest.approx((low + high) / 2 - half, rel=1e-9)
    assert found.high == pytest.approx((low + high) / 2 + half, rel=1e-9)


def test_interval_is_scipys():
    x = [1.944, 1.969, 1.949, 1.960]
    interval = stats.t.interval(0.95, 3, loc=np.mean(x), scale=stats.sem(x))
    found = estimate(x)
    assert (found.low, found.high) == pytest.approx(interval, rel=1e-12)
    assert found.n == 4


def test_K35_one_seed_has_no_interval():
    assert estimate([1.5]) == (1.5, None, None, 1)
    assert estimate([]) is None


def test_K35_identical_seeds_give_a_degenerate_interval():
    found = estimate([1.3, 1.3, 1.3])
    assert found.low == found.mean == found.high
    assert found.mean == pytest.approx(1.3)


def test_K35_a_constant_shift_has_no_p_value():
    base = {0: 1.971, 1: 1.983, 2: 1.967}
    found = paired({seed: value - 0.013 for seed, value in base.items()}, base)
    assert found.p is None
    assert "no p-value" in found.note
    assert found.difference.mean == pytest.approx(-0.013)
    assert found.difference.low == found.difference.high


def test_K35_three_pairs_cannot_reject():
    # enumeration: of 2^3 equally likely sign patterns two are the most extreme
    assert smallest_p(3) == 0.25
    assert [smallest_p(n) for n in (1, 2, 5, 6)] == [1.0, 0.5, 0.0625, 0.03125]
    assert stats.wilcoxon([0.1, 0.2, 0.3]).pvalue == smallest_p(3)
    found = paired({0: 1.0, 1: 1.1, 2: 1.2}, {0: 1.5, 1: 1.7, 2: 1.9})
    assert "3 pairs can't reject at 0.05" in found.note
    assert "0.25" in found.note
    six = paired({s: 1 + 0.01 * s for s in range(6)}, {s: 2 + 0.03 * s for s in range(6)})
    assert "signed-rank" not in six.note
    assert MIN_TEST_PAIRS == 6
    assert (found.p, six.p) == (None, pytest.approx(2 / 64))


def test_sign_flip_is_the_enumeration():
    x = np.array([0.3, -0.1, 0.4, 0.2, 0.05, 0.3, -0.02])
    means = [np.mean(x * signs) for signs in itertools.product((1, -1), repeat=len(x))]
    expected = np.mean(np.abs(means) >= abs(x.mean()) - 1e-12)
    assert sign_flip_p(x) == pytest.approx(expected)
    assert sign_flip_p(-x) == pytest.approx(expected)
    # twenty pairs are drawn, not enumerated: the same draws twice
    many = np.tile(x, 3)[:20]
    assert sign_flip_p(many) == sign_flip_p(many)


def test_paired_uses_shared_seeds_alone():
    found = paired({0: 1.0, 1: 2.0, 5: 9.0}, {0: 1.5, 1: 2.7, 3: 0.0})
    low, high = stats.ttest_rel([1.0, 2.0], [1.5, 2.7]).confidence_interval(0.95)
    assert found.difference.n == 2
    assert found.difference.mean == pytest.approx(-0.6)
    assert found.difference[1:3] == pytest.approx((low, high))
    assert found.error == pytest.approx(0.1)
    assert paired({0: 1.0}, {1: 1.0}) is None


def test_one_pair():
    found = paired({0: 1.0}, {0: 1.5})
    assert (found.p, found.difference.low) == (None, None)
    assert "n=1" in found.note


def test_not_finite_is_refused():
    with pytest.raises(ValueError, match="finite"):
        estimate([1.0, math.nan])


def test_K35_same_seed_same_bootstrap_interval_whatever_the_global_state():
    noise = np.random.Generator(np.random.PCG64(0))
    size = noise.integers(100, 200, 50)
    base = size * 1.9
    bits = base - size * noise.normal(0.05, 0.02, 50)
    np.random.seed(1)
    first = document_bootstrap(bits, base, size, seed=3)
    np.random.seed(2)
    assert document_bootstrap(bits, base, size, seed=3) == first
    assert document_bootstrap(bits, base, size, seed=4) != first
    # the percentile interval is near the normal one of the ratio of sums
    ratio = (bits - base).sum() / size.sum()
    sem = np.std((bits - base) - ratio * size, ddof=1) * math.sqrt(50) / size.sum()
    assert first[:2] == pytest.approx((ratio - 1.96 * sem, ratio + 1.96 * sem), abs=0.3 * sem)
    assert first.error == pytest.approx(sem, rel=0.1)
