"""Means, intervals and paired differences over seeds, and a bootstrap over documents (K35).

Seeds are few: intervals are Student's t at 95 %, one seed has no interval, and no p-value is
given where none is defined. Resampling uses a generator of its own, never numpy's global state.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy import stats

LEVEL = 0.95
INTERVAL = "Student's t interval at 95 % over seeds"
# a spread this small, relative to the values, is rounding in the last bits and not a spread
_ROUNDING = 1e-12


class Estimate(NamedTuple):
    """A mean over n seeds; low and high are None when n < 2 and equal when all seeds agree."""

    mean: float
    low: float | None
    high: float | None
    n: int


class Paired(NamedTuple):
    """Differences of seeds that both methods have.

    error is the standard error of their mean, None for one pair. p is that of an exact two-sided
    sign-flip test; None with fewer pairs than could ever reach 0.05, or when the differences have
    no spread (a constant shift proves nothing about chance: not p = 0). smallest_p is the
    smallest that so many pairs can give: 0.25 with three.
    """

    difference: Estimate
    error: float | None
    p: float | None
    smallest_p: float
    note: str


class Resampled(NamedTuple):
    """A 95 % percentile interval and the standard error that resampling gives."""

    low: float
    high: float
    error: float


def estimate(values: list[float]) -> Estimate | None:
    """Mean and t interval of one value a seed; None for no values.

    Raises:
        ValueError: a value is not finite.
    """
    x = np.asarray(values, dtype=np.float64)
    if x.size == 0:
        return None
    if not np.isfinite(x).all():
        raise ValueError(f"values must be finite, got {values}")
    mean = float(x.mean())
    if x.size == 1:
        return Estimate(mean, None, None, 1)
    spread = _spread(x)
    half = float(stats.t.ppf(0.5 + LEVEL / 2, x.size - 1)) * spread / math.sqrt(x.size)
    return Estimate(mean, mean - half, mean + half, int(x.size))


def _spread(x: np.ndarray) -> float:
    """Sample standard deviation; exactly 0 where it is only rounding."""
    spread = float(x.std(ddof=1))
    return 0.0 if spread <= _ROUNDING * max(1.0, float(np.abs(x).max())) else spread


def paired(ours: dict[int, float], baseline: dict[int, float]) -> Paired | None:
    """Difference ours - baseline over the seeds that both have; None if they share none."""
    seeds = sorted(set(ours) & set(baseline))
    if not seeds:
        return None
    x = np.array([ours[seed] - baseline[seed] for seed in seeds], dtype=np.float64)
    n, smallest = len(seeds), smallest_p(len(seeds))
    p, notes = None, []
    if n == 1:
        notes.append("n=1: no interval")
    elif _spread(x) == 0.0:
        notes.append("the same shift in every pair: no spread, so no p-value")
    elif n >= MIN_TEST_PAIRS:
        p = sign_flip_p(x)
    if n < MIN_TEST_PAIRS:
        pairs = "1 pair" if n == 1 else f"{n} pairs"
        notes.append(
            f"{pairs} can't reject at 0.05 by a signed-rank or sign-flip test "
            f"(smallest p {smallest:g})"
        )
    error = None if n == 1 else _spread(x) / math.sqrt(n)
    return Paired(estimate(x.tolist()), error, p, smallest, "; ".join(notes))


def smallest_p(n: int) -> float:
    """Smallest two-sided p of a signed-rank or sign-flip test with n pairs: 2 / 2^n, at most 1."""
    return min(1.0, 2.0 ** (1 - n))


MIN_TEST_PAIRS = next(n for n in range(1, 64) if smallest_p(n) <= 1 - LEVEL + 1e-12)


def sign_flip_p(x: np.ndarray) -> float:
    """Two-sided p of the mean of x (n,) under all 2^n flips of signs; drawn where n > 16.

    Assumes that a difference is as likely positive as negative if the methods are alike; no
    normal distribution.
    """
    found = stats.permutation_test(
        (x,), np.mean, permutation_type="samples", n_resamples=2**16, vectorized=False,
        rng=np.random.Generator(np.random.PCG64(0)),
    )  # fmt: skip
    return float(found.pvalue)


def document_bootstrap(
    bits: np.ndarray,
    baseline_bits: np.ndarray,
    bytes_: np.ndarray,
    seed: int = 0,
    draws: int = 2000,
) -> Resampled:
    """A difference in corpus BPB, by resampling test documents (a ratio of sums each time).

    It says how much the difference depends on which documents were tested, for these trained
    weights; the interval over seeds says how much it depends on the training run.

    Args:
        bits, baseline_bits: bits of each document under the two methods (K,).
        bytes_: bytes of each document (K,).
        seed: of this function's own generator: the same seed gives the same interval.
    """
    difference = np.asarray(bits, np.float64) - np.asarray(baseline_bits, np.float64)
    weight = np.asarray(bytes_, np.float64)
    generator = np.random.Generator(np.random.PCG64(seed))
    count = len(weight)
    ratios = np.empty(draws)
    for draw in range(draws):
        chosen = generator.integers(0, count, size=count)
        ratios[draw] = difference[chosen].sum() / weight[chosen].sum()
    low, high = np.quantile(ratios, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Resampled(float(low), float(high), float(ratios.std(ddof=1)))
