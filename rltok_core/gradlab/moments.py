"""Exact mean and variance of an estimator's gradient, over every boundary sequence of a batch.

Three ways, the cheapest that is right:

- separate(): each row's terms look at that row alone. Rows are independent, so means and variances
  of rows add up.
- centred(): terms are linear in a reward R_i, from which the mean over the batch's rows may be
  subtracted (the score function with its batch-relative advantage). Rows are coupled, but through
  products of quantities of independent rows, so that all moments are sums over one row's sequences.
- joint(): every combination of the rows' sequences, each with its own backward pass; for anything,
  and slow. It is what the other two are tested against.

With T_b(a) the gradient per unit of reward (P x K for K rewards), R_b(a) the rewards, n_b(a) the
rest (the path through the network), all of row b alone, the batch's gradient is
    g = 1/B sum_b [n_b + T_b (R_b - c/B sum_b' R_b')],   c = 1 with the batch baseline, else 0.
A score has mean zero, E T_b = 0 (checked), so that E g = 1/B sum_b E[n_b + (1 - c/B) T_b R_b]: the
batch baseline, which contains the row's own reward, shrinks the mean by (B - 1) / B.

Shapes: M sequences of a row, B rows, S positions, K rewards of a row, P parameters.
"""

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from rltok_core.boundaries.contract import Estimator, Outcome, Proposal
from rltok_core.data.batch import Batch
from rltok_core.gradlab.exact import (
    Sequences,
    all_sequences,
    batch_of,
    flat,
    log_probability,
    outcome_of,
)
from rltok_core.model.unet import UNet

TOLERANCE = 1e-9


@dataclass
class Moments:
    """Of a batch's gradient.

    Attributes:
        mean_P: its exact mean, or the mean of the samples.
        variance: E ||g - E g||^2.
        error: standard error of mean_P (a norm); 0 if nothing was sampled.
    """

    mean_P: torch.Tensor
    variance: float
    error: float = 0.0


def alone(model: UNet, ids_S: torch.Tensor, rate: float, a_1S: torch.Tensor, u_1S=None):
    """(P): the gradient of one sequence as a batch of one row, by plain autograd."""
    outcome = outcome_of(model, batch_of(ids_S, a_1S, u_1S), rate, a_1S)
    return plain_gradient(model, outcome)


def plain_gradient(model: UNet, outcome: Outcome) -> torch.Tensor:
    """(P): of nats a position and the estimator's own terms; means over draws."""
    parameters = list(model.parameters())
    loss = -outcome.logp_BS.sum() / outcome.logp_BS.numel()
    loss = loss + sum(t.weight * t.value for t in model.estimator.losses(outcome).values())
    return flat(parameters, torch.autograd.grad(loss, parameters, allow_unused=True))


def is_separate(model: UNet, ids_S: torch.Tensor, rate: float, found: Sequences) -> bool:
    """Whether sequences as a batch have the gradients that each has alone: tried on three."""
    a_MS = all_sequences(len(ids_S))
    u_MS = found.outcome.batch.stream.u_BS
    for place in (0, len(a_MS) // 3, len(a_MS) - 2):
        one = slice(place, place + 1)
        gap = alone(model, ids_S, rate, a_MS[one], u_MS[one]) - found.loss_MP[place]
        if gap.abs().max() > TOLERANCE:
            return False
    return True


@dataclass
class Separate:
    """One row's gradient: mean and variance, and the error of a mean over sampled noise."""

    mean_P: torch.Tensor
    square: torch.Tensor
    error2: float


def separate_row(draws: list[Sequences], columns: torch.Tensor) -> Separate:
    """Moments of a row from one Sequences (no noise but the boundaries) or several (noise drawn).

    With noise, boundaries are still summed over exactly: a mean over draws for each sequence.
    """
    pi_M1 = draws[0].pi_M[:, None]
    draw_KMP = torch.stack([draw.loss_MP[:, columns] for draw in draws])
    square = (pi_M1 * draw_KMP.square().mean(0)).sum()
    error2 = 0.0
    if len(draws) > 1:
        spread_MP = draw_KMP.var(0) / len(draws)
        error2 = float((pi_M1.square() * spread_MP).sum())
    return Separate((pi_M1 * draw_KMP.mean(0)).sum(0), square, error2)


def separate(rows: list[Separate]) -> Moments:
    """The batch of these rows."""
    count = len(rows)
    mean_P = torch.stack([row.mean_P for row in rows]).mean(0)
    # with sampled noise the square of the mean is too large by the mean's own error
    variance = sum(float(row.square - row.mean_P.square().sum()) + row.error2 for row in rows)
    error = sum(row.error2 for row in rows) ** 0.5 / count
    return Moments(mean_P, variance / count**2, error)


def independent(rows: list[Moments]) -> Moments:
    """The batch of rows that know nothing of each other."""
    mean_P = torch.stack([row.mean_P for row in rows]).mean(0)
    return Moments(mean_P, sum(row.variance for row in rows) / len(rows) ** 2)


@contextlib.contextmanager
def rewarded(estimator: Estimator, reward_BS: torch.Tensor) -> Iterator[None]:
    """The estimator with these rewards in the place of its own."""
    estimator.reward = lambda outcome: reward_BS
    try:
        yield
    finally:
        del estimator.reward


def logit_weights(estimator: Estimator, outcome: Outcome) -> torch.Tensor:
    """(M, S): derivative of the estimator's terms, each sequence alone, by its logits."""
    logit_MS = outcome.proposal.logit_BS.clone().requires_grad_()
    proposal = replace(outcome.proposal, logit_BS=logit_MS)
    terms = estimator.losses(replace(outcome, proposal=proposal)).values()
    return torch.autograd.grad(sum(t.weight * t.value for t in terms), logit_MS)[0] * len(logit_MS)


def gathered(outcome: Outcome, places_KN: list[torch.Tensor]) -> Outcome:
    """The outcome of K draws: sequence places_KN[k][n] as draw k of the n-th of N tuples."""
    place = torch.cat(places_KN)
    proposal, batch = outcome.proposal, outcome.batch

    def rows(value):
        return None if value is None else value[place]

    return replace(
        outcome,
        batch=Batch(
            batch.ids_BS[place], batch.length_B[place], batch.stream, samples=len(places_KN)
        ),
        proposal=Proposal(
            *(rows(getattr(proposal, name)) for name in ("boundary_BS", "prob_BS", "free_BS")),
            logit_BS=rows(proposal.logit_BS),
            drawn_BS=rows(proposal.drawn_BS),
            extra={name: rows(value) for name, value in proposal.extra.items()},
        ),
        logp_BS=outcome.logp_BS[place],
        logp_early_BS=outcome.logp_early_BS[place],
    )


def reward_map(estimator: Estimator, outcome: Outcome) -> torch.Tensor:
    """(M, S, K): logit_weights per unit of each reward, from the estimator's own losses.

    An estimator of several draws is asked for tuples of the sequences; its weights must be those
    of each draw's reward less the mean of the others'.

    Raises:
        ValueError: the losses aren't this map of the estimator's own reward.
    """
    samples, rows = estimator.samples, len(outcome.logp_BS)
    count = outcome.logp_BS.shape[1] - 1
    place_DM = [(torch.arange(rows) + 7 * draw) % rows for draw in range(samples)]
    drawn = gathered(outcome, place_DM) if samples > 1 else outcome
    unit = torch.zeros_like(drawn.logp_BS)
    columns = []
    for k in range(count):
        unit.zero_()[:rows, k] = 1.0
        with rewarded(estimator, unit.clone()):
            columns.append(logit_weights(estimator, drawn)[:rows])
    map_MSK = torch.stack(columns, -1)
    reward_DMK = estimator.reward(drawn)[:, :count].view(samples, rows, count)
    if samples > 1:
        reward_DMK = reward_DMK - (reward_DMK.sum(0) - reward_DMK) / (samples - 1)
    map_RSK = torch.cat([map_MSK[place_M] for place_M in place_DM])
    ours_RS = (map_RSK @ reward_DMK.flatten(0, 1)[..., None])[..., 0]
    if (logit_weights(estimator, drawn) - ours_RS).abs().max() > TOLERANCE:
        raise ValueError(f"{type(estimator).__name__}: its loss isn't linear in its reward")
    return map_MSK


@dataclass
class Rewarded:
    """One row of a reward-linear estimator: what centred() needs, as means over sequences.

    n: the gradient without the estimator's terms; T: per unit of reward; R: the rewards.
    """

    n_P: torch.Tensor
    n_n: torch.Tensor
    TR_P: torch.Tensor
    TR_TR: torch.Tensor
    n_TR: torch.Tensor
    Tn_K: torch.Tensor
    TTR_K: torch.Tensor
    TT_KK: torch.Tensor
    R_K: torch.Tensor
    RR_KK: torch.Tensor
    TxR_KKP: torch.Tensor


def unit_gradients(found: Sequences, map_MSK: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """T_MKP: the gradient per unit of each reward."""
    return map_MSK.mT @ found.logit_MSP[..., columns]


def rewarded_row(
    found: Sequences, T_MKP: torch.Tensor, reward_MK: torch.Tensor, columns: torch.Tensor
) -> Rewarded:
    """Moments of one row.

    Raises:
        ValueError: E T isn't zero: the estimator doesn't multiply rewards by scores.
    """
    pi_M, n_MP = found.pi_M, found.path_MP[:, columns]
    if torch.tensordot(pi_M, T_MKP, 1).abs().max() > TOLERANCE:
        raise ValueError("the mean of the score isn't zero")
    TR_MP = (reward_MK[:, None] @ T_MKP)[:, 0]
    root_MKP = pi_M.sqrt()[:, None, None] * T_MKP
    root_KX = root_MKP.transpose(0, 1).flatten(1)
    return Rewarded(
        n_P=pi_M @ n_MP,
        n_n=pi_M @ n_MP.square().sum(1),
        TR_P=pi_M @ TR_MP,
        TR_TR=pi_M @ TR_MP.square().sum(1),
        n_TR=pi_M @ (n_MP * TR_MP).sum(1),
        Tn_K=pi_M @ (T_MKP @ n_MP[..., None])[..., 0],
        TTR_K=pi_M @ (T_MKP @ TR_MP[..., None])[..., 0],
        TT_KK=root_KX @ root_KX.T,
        R_K=pi_M @ reward_MK,
        RR_KK=reward_MK.T @ (pi_M[:, None] * reward_MK),
        TxR_KKP=torch.tensordot((pi_M[:, None] * reward_MK).T, T_MKP, 1).transpose(0, 1),
    )


def centred(rows: list[Rewarded], batch_relative: bool) -> Moments:
    """Moments of the batch of these rows, with or without the batch baseline.

    g B = sum_b y_b - beta sum_{b != b'} T_b R_b', with y_b = n_b + (1 - beta) T_b R_b and
    beta = 1/B.
    """
    beta = 1 / len(rows) if batch_relative else 0.0
    return products(rows, 1 - beta, beta)


def products(rows: list[Rewarded], alpha: float, beta: float) -> Moments:
    """Moments of 1/B [sum_b (n_b + alpha T_b R_b) - beta sum_{b != b'} T_b R_b'].

    Of the products of two terms those survive, by E T = 0, in which every T meets something else
    of its own row.
    """
    count = len(rows)
    mean_BP = torch.stack([row.n_P + alpha * row.TR_P for row in rows])
    variance = torch.zeros((), dtype=torch.float64)
    total_K = sum(row.R_K for row in rows)
    spread_KK = sum(row.RR_KK - torch.outer(row.R_K, row.R_K) for row in rows)
    for row, mean_P in zip(rows, mean_BP, strict=True):
        square = row.n_n + 2 * alpha * row.n_TR + alpha**2 * row.TR_TR
        variance += square - mean_P.square().sum()
        others_K = total_K - row.R_K
        variance -= 2 * beta * (row.Tn_K + alpha * row.TTR_K) @ others_K
        others_KK = spread_KK - (row.RR_KK - torch.outer(row.R_K, row.R_K))
        others_KK = others_KK + torch.outer(others_K, others_K)
        variance += beta**2 * (row.TT_KK * others_KK).sum()
    # (T_b R_c) (T_c R_b): the two rows' baselines meet
    total_KKP = sum(row.TxR_KKP for row in rows)
    pairs = (total_KKP * total_KKP.transpose(0, 1)).sum()
    pairs -= sum((row.TxR_KKP * row.TxR_KKP.transpose(0, 1)).sum() for row in rows)
    variance += beta**2 * pairs
    return Moments(mean_BP.mean(0), float(variance) / count**2)


def joint(model: UNet, ids_BS: torch.Tensor, rate: float, columns: torch.Tensor) -> Moments:
    """Moments by enumerating all M^B combinations of the rows' sequences."""
    a_MS = all_sequences(ids_BS.shape[1])
    mean_P, square, total = 0.0, 0.0, 0.0
    for places in itertools.product(range(len(a_MS)), repeat=len(ids_BS)):
        a_BS = a_MS[list(places)]
        outcome = outcome_of(model, batch_of(ids_BS, a_BS), rate, a_BS)
        pi = log_probability(outcome.proposal).sum().exp().item()
        g_P = plain_gradient(model, outcome)[columns]
        mean_P, square, total = mean_P + pi * g_P, square + pi * g_P.square().sum(), total + pi
    assert abs(total - 1) < TOLERANCE
    return Moments(mean_P, float(square - mean_P.square().sum()))
