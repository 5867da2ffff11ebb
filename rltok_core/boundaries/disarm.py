"""The paper's policy with two draws of the boundaries a row from mirrored random numbers.

DisARM / U2G (Dong, Mnih & Tucker 2020, "DisARM: An Antithetic Gradient Estimator for Binary Latent
Variables"; Yin et al. 2020): a_i = [u_i < p_i] and a'_i = [1 - u_i < p_i] differ as often as two
draws can. With G_i, G'_i their returns from i on, D = G_i - G'_i and l_i the common logit,
    g_i = 1/2 D (a_i - a'_i) max(p_i, 1 - p_i) dl_i                                           (1)
is an unbiased estimate of the gradient of E G_i by position i's logit, if the logit and the law of
everything after i are the same in both draws but for a_i: so for w = 1, where decisions are
independent given the text. Early exit and batch mean would cancel in D.

For w > 1 the draws' histories h, h' differ after their first difference, and with them the logits
l, l' (probabilities p, q). Let Q(h, a) be the expected return after choice a. Wanted, given the
histories, is 1/2 [p (1-p) (Q(h,1) - Q(h,0)) dl + q (1-q) (Q(h',1) - Q(h',0)) dl']. Later random
numbers are independent of u_i, so that a draw's return has mean Q(h, a_i) whatever the other chose.
For p + q < 1 the choices (1,0), (0,1), (0,0) have probabilities p, q, 1 - p - q; for p + q > 1 it
is (1,0), (0,1), (1,1) with 1 - q, 1 - p, p + q - 1. Asking for a factor of D in each case, so that
all four Q come out right, has one solution:
    p + q < 1:  (1,0): 1/2 (1-p) dl     (0,1): -1/2 (1-q) dl'
    p + q > 1:  (1,0): 1/2 q dl'        (0,1): -1/2 p dl
    equal choices, either case:  1/2 [q (1-q) dl' - p (1-p) dl] / (1 - p - q)                 (2)
which is (1) where p = q and dl = dl'. It exists unless p + q = 1, and its variance grows as
1 / |1 - p - q|: within MARGIN of that the position falls back on both draws' own score functions,
less the early exit's return. Histories alone choose the fallback, so it is unbiased too. Conditions
for w > 1, then: decisions are drawn one after another, u_i independent of the past; histories enter
through the last w - 1 boundaries (where these agree, (1) holds); returns count from i on. With
gamma < 1 it is unbiased for discounted returns only, as every estimator here.

Shapes: B rows of one draw (a batch holds two blocks of them), S positions, w policy outputs.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from rltok_core.boundaries.contract import LossTerm, Outcome
from rltok_core.boundaries.policy import Policy
from rltok_core.boundaries.score_function import ReturnParams
from rltok_core.model.scans import discounted_suffix_sum

MARGIN = 0.2  # of 1 - p - q


@dataclass(frozen=True)
class Params(ReturnParams):
    """See configs/estimators/disarm.yaml."""


class Disarm(Policy):
    """Antithetic pairs; for w > 1 with the weights that keep them unbiased."""

    samples = 2
    antithetic = True
    unbiased = {"gamma": 1.0}

    def __init__(self, params: dict, d_model: int, target_rate: float, seq_len: int):
        super().__init__(Params(**params), d_model, target_rate, seq_len)

    def losses(self, outcome: Outcome) -> dict[str, LossTerm]:
        """L_pi and L_target; `outcome` holds the rows of both draws."""
        proposal, scored_BS = outcome.proposal, outcome.batch.scored_BS
        first_BS, second_BS = self._returns(outcome.logp_BS, scored_BS).chunk(2)
        early_BS = self._returns(outcome.logp_early_BS, scored_BS).chunk(2)[0]
        a_BS, b_BS = proposal.boundary_BS.chunk(2)
        p_BS, q_BS = torch.sigmoid(proposal.logit_BS.detach()).chunk(2)
        weight_BS = torch.cat(
            antithetic_weights(
                a_BS, b_BS, p_BS, q_BS, self._same_history(a_BS, b_BS),
                first_BS - early_BS, second_BS - early_BS,
            )
        )  # fmt: skip
        gain = (weight_BS * proposal.logit_BS * proposal.free_BS).sum()
        # two draws of each position make one estimate
        policy = -2 * gain / outcome.batch.valid_BS.sum()
        return {
            "policy": LossTerm(self.params.lam_pi, policy),
            "target": self.target_term(outcome),
        }

    def _returns(self, logp_BS: torch.Tensor, scored_BS: torch.Tensor) -> torch.Tensor:
        return discounted_suffix_sum(logp_BS.detach() * scored_BS, self.params.gamma)

    def _same_history(self, a_BS: torch.Tensor, b_BS: torch.Tensor) -> torch.Tensor:
        """bool: the w - 1 boundaries before agree in both draws, and so do the logits."""
        window = self.policy.out_features
        differ_BSw = F.pad(a_BS != b_BS, (window - 1, 0)).unfold(1, window, 1)
        return ~differ_BSw[..., :-1].any(-1)


def antithetic_weights(
    a_BS: torch.Tensor,
    b_BS: torch.Tensor,
    p_BS: torch.Tensor,
    q_BS: torch.Tensor,
    same_BS: torch.Tensor,
    return_a_BS: torch.Tensor,
    return_b_BS: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The factors of dl and of dl' in an estimate of the gradient of both draws' mean return.

    Args:
        a_BS, b_BS: bool, the draws; p_BS, q_BS: their probabilities of a boundary.
        same_BS: bool, the logits are one and the same function of the weights.
        return_a_BS, return_b_BS: returns, less any baseline that no choice enters.
    """
    gap_BS, rest_BS = return_a_BS - return_b_BS, 1 - p_BS - q_BS
    only_a_BS, only_b_BS = a_BS & ~b_BS, b_BS & ~a_BS
    low_BS, apart_BS = rest_BS >= 0, ~same_BS
    zero_BS = torch.zeros_like(gap_BS)

    def chosen(mask_BS, value_BS):
        return torch.where(mask_BS, value_BS, zero_BS)

    first_BS = chosen(only_a_BS & low_BS, (1 - p_BS) * gap_BS)
    first_BS = first_BS - chosen(only_b_BS & ~low_BS, p_BS * gap_BS)
    second_BS = chosen(only_a_BS & ~low_BS, q_BS * gap_BS)
    second_BS = second_BS - chosen(only_b_BS & low_BS, (1 - q_BS) * gap_BS)
    near_BS = apart_BS & (rest_BS.abs() < MARGIN)
    alike_BS = apart_BS & ~near_BS & (a_BS == b_BS)
    share_BS = gap_BS / torch.where(alike_BS, rest_BS, torch.ones_like(rest_BS))
    first_BS = first_BS - chosen(alike_BS, p_BS * (1 - p_BS) * share_BS)
    second_BS = second_BS + chosen(alike_BS, q_BS * (1 - q_BS) * share_BS)
    first_BS = torch.where(near_BS, (a_BS.to(p_BS.dtype) - p_BS) * return_a_BS, first_BS)
    second_BS = torch.where(near_BS, (b_BS.to(q_BS.dtype) - q_BS) * return_b_BS, second_BS)
    return first_BS / 2, second_BS / 2
