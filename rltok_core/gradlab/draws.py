"""Estimators that draw boundaries several times a row: the law of the draws, and exact moments.

Draws are independent given the text, or in pairs from mirrored random numbers
(Estimator.antithetic): a_i = [u_i < p_i], a'_i = [1 - u_i < p'_i], where p_i and p'_i know their
own draw's past. Then, i by i, both are 1 with probability max(0, p + p' - 1), and each alone has
its own law.

- paired(): all pairs of a row's sequences, with the estimator's own loss. A pair's gradient is a
  sum of the sequences' (their paths through the network, and their logits' gradients times the
  loss's derivatives by the logits), so that a table of inner products gives the variance.
- leave_one_out(): K independent draws of a reward-linear estimator, each less the mean of the other
  draws' rewards: the algebra of moments.centred(), with draws in the place of rows.
- joint_draws(): every combination, each with its own backward pass; for anything, and slow.

Shapes: M sequences of a row, N pairs, S positions, K draws, P parameters.
"""

import itertools

import torch

from rltok_core.boundaries.contract import Estimator, Proposal
from rltok_core.gradlab.exact import (
    Sequences,
    all_sequences,
    batch_of,
    draw_probabilities,
    log_probability,
    outcome_of,
)
from rltok_core.gradlab.moments import (
    TOLERANCE,
    Moments,
    Rewarded,
    gathered,
    logit_weights,
    plain_gradient,
    products,
)
from rltok_core.model.unet import UNet

CHUNK = 512  # pairs at a time


def pair_law(proposal: Proposal, antithetic: bool) -> torch.Tensor:
    """(M, M): probability of each pair of sequences as two draws of one row.

    Args:
        proposal: of all sequences of the row, detached.
    """
    if not antithetic:
        pi_M = log_probability(draw_probabilities(proposal)).exp()
        return torch.outer(pi_M, pi_M)
    p_MS = draw_probabilities(proposal).prob_BS
    a_MS, free_MS = proposal.boundary_BS, proposal.free_BS
    p_M1S, q_1MS = p_MS[:, None], p_MS[None]
    both_MMS = (p_M1S + q_1MS - 1).clamp(min=0)
    first_MMS, second_MMS = a_MS[:, None], a_MS[None]
    by_case = torch.where(
        first_MMS,
        torch.where(second_MMS, both_MMS, p_M1S - both_MMS),
        torch.where(second_MMS, q_1MS - both_MMS, 1 - p_M1S - q_1MS + both_MMS),
    )
    return torch.where(free_MS[:, None] & free_MS[None], by_case, 1.0).prod(-1)


def paired(
    model: UNet, found: Sequences, rate: float, scopes: dict[str, torch.Tensor]
) -> dict[str, Moments]:
    """Moments of one row's gradient over all pairs of draws, by scope.

    Args:
        found: with logit_MSP; of the row, by the model whose estimator draws pairs.
        scopes: bool (P) by name, the entries of the gradient that count.

    Raises:
        ValueError: the estimator's loss reaches the network otherwise than through the logits.
    """
    count = len(found.outcome.logp_BS)
    law_N = pair_law(found.outcome.proposal, model.estimator.antithetic).flatten()
    assert abs(float(law_N.sum()) - 1) < TOLERANCE
    pairs_N = law_N.nonzero().flatten()
    # of what a pair's gradient is made: paths of all sequences, then their logits by position
    basis_XP = torch.cat([found.path_MP, found.logit_MSP.flatten(0, 1)])
    bases = {scope: basis_XP[:, columns] for scope, columns in scopes.items()}
    products = {scope: basis @ basis.T for scope, basis in bases.items()}
    mean_X, square = 0.0, dict.fromkeys(scopes, 0.0)
    for part_N in pairs_N.split(CHUNK):
        shares_NX = _shares(model.estimator, found, part_N // count, part_N % count)
        mean_X = mean_X + law_N[part_N] @ shares_NX
        for scope, products_XX in products.items():
            length2_N = ((shares_NX @ products_XX) * shares_NX).sum(1)
            square[scope] += float(law_N[part_N] @ length2_N)
    for place in (pairs_N[len(pairs_N) // 3], pairs_N[-1]):
        places = place[None] // count, place[None] % count
        ours_P = (_shares(model.estimator, found, *places) @ basis_XP)[0]
        ids_1S = found.outcome.batch.ids_BS[:1]
        a_KS = torch.cat([found.outcome.proposal.boundary_BS[p] for p in places])
        if (ours_P - together(model, ids_1S, rate, a_KS)).abs().max() > TOLERANCE:
            raise ValueError(f"{type(model.estimator).__name__}: not a function of its logits")
    means = {scope: mean_X @ basis for scope, basis in bases.items()}
    return {
        scope: Moments(mean_P, square[scope] - float(mean_P.square().sum()))
        for scope, mean_P in means.items()
    }


def _shares(estimator: Estimator, found: Sequences, first_N, second_N) -> torch.Tensor:
    """(N, M + M S): of each member of the basis in the gradient of each pair."""
    count, length = found.outcome.logp_BS.shape
    outcome = gathered(found.outcome, [first_N, second_N])
    # a loss is a mean over both draws of all pairs; logit_weights makes it one of each row alone
    weights_2NS = logit_weights(estimator, outcome).view(2, -1, length) / 2
    shares_NX = torch.zeros(len(first_N), count * (1 + length), dtype=torch.float64)
    for place_N, weights_NS in zip((first_N, second_N), weights_2NS, strict=True):
        shares_NX.scatter_add_(1, place_N[:, None], torch.full_like(shares_NX[:, :1], 0.5))
        logits_NS = count + place_N[:, None] * length + torch.arange(length)
        shares_NX.scatter_add_(1, logits_NS, weights_NS)
    return shares_NX


def together(model: UNet, ids_BS: torch.Tensor, rate: float, a_RS: torch.Tensor) -> torch.Tensor:
    """(P): the gradient of rows with given draws, by plain autograd.

    Args:
        a_RS: the first draw of all rows, the second of all rows, ...
    """
    rows = len(ids_BS)
    batch = batch_of(ids_BS, a_RS[:rows]).with_stream(batch_of(ids_BS[:1], a_RS).stream)
    return plain_gradient(model, outcome_of(model, batch, rate, a_RS, samples=len(a_RS) // rows))


def leave_one_out(row: Rewarded, samples: int) -> Moments:
    """Moments of one row's mean over K independent draws, as the module says.

    With y_k = n_k + T_k R_k the gradient is 1/K [sum_k y_k - 1/(K-1) sum_{k != j} T_k R_j].
    """
    return products([row] * samples, alpha=1.0, beta=1 / (samples - 1))


def joint_draws(model: UNet, ids_S: torch.Tensor, rate: float, columns: torch.Tensor) -> Moments:
    """Moments of one row by enumerating all combinations of its draws' sequences."""
    estimator, a_MS = model.estimator, all_sequences(len(ids_S))
    with torch.no_grad():
        proposal = outcome_of(model, batch_of(ids_S, a_MS), rate, a_MS).proposal
    pi_M = log_probability(draw_probabilities(proposal)).exp()
    law_MM = pair_law(proposal, estimator.antithetic)
    mean_P, square, total = 0.0, 0.0, 0.0
    for places in itertools.product(range(len(a_MS)), repeat=estimator.samples):
        pi = 1.0
        for k in range(0, len(places), 2):
            pair = places[k : k + 2]
            pi *= float(law_MM[pair] if len(pair) == 2 else pi_M[pair])
        total += pi
        if pi > 0:
            g_P = together(model, ids_S[None], rate, a_MS[list(places)])[columns]
            mean_P, square = mean_P + pi * g_P, square + pi * g_P.square().sum()
    assert abs(total - 1) < TOLERANCE
    return Moments(mean_P, float(square - mean_P.square().sum()))
