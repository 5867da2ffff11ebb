"""The paper's estimator: its policy (policy.py) trained by a score-function (REINFORCE) gradient.

Loss (paper.md 5): each position's reward is the log-probability that the final head gives the next
byte, less that of the early exit, less the batch's mean; discounted returns weigh log pi(a_i).

Shapes: B rows, S positions.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from rltok_core.boundaries.contract import LossTerm, Outcome
from rltok_core.boundaries.policy import Policy, PolicyParams
from rltok_core.model.scans import discounted_suffix_sum


@dataclass(frozen=True)
class ReturnParams(PolicyParams):
    """What every estimator that weighs log pi by returns shares."""

    gamma: float
    lam_pi: float

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.gamma <= 1:
            raise ValueError(f"gamma must lie in [0, 1], got {self.gamma}")


@dataclass(frozen=True)
class Params(ReturnParams):
    """See configs/estimators/score_function.yaml; symbols of paper.md 4 and 5."""

    early_exit_reward: bool
    batch_relative: bool


class ScoreFunction(Policy):
    """Dauncey & Wattenhofer's policy and estimator (paper.md 4, 5)."""

    Params = Params
    unbiased = {"gamma": 1.0, "batch_relative": False}

    def __init__(self, params: dict, d_model: int, target_rate: float, seq_len: int):
        super().__init__(self.Params(**params), d_model, target_rate, seq_len)

    def losses(self, outcome: Outcome) -> dict[str, LossTerm]:
        """L_pi and L_target of paper.md 5."""
        return {
            "policy": LossTerm(self.params.lam_pi, policy_loss(self.advantage(outcome), outcome)),
            "target": self.target_term(outcome),
        }

    def advantage(self, outcome: Outcome) -> torch.Tensor:
        """A_BS, detached, nats: the discounted return that weighs log pi(a_i)."""
        return discounted_suffix_sum(self.reward(outcome), self.params.gamma)

    def reward(self, outcome: Outcome) -> torch.Tensor:
        """R_BS, detached, nats: what position i's prediction gained; 0 where nothing is scored."""
        reward_BS = outcome.logp_BS.detach()
        if self.params.early_exit_reward:
            reward_BS = reward_BS - outcome.logp_early_BS.detach()
        scored_BS = outcome.batch.scored_BS
        if self.params.batch_relative:
            reward_BS = centred(reward_BS, scored_BS)
        return reward_BS * scored_BS


def centred(reward_BS: torch.Tensor, scored_BS: torch.Tensor) -> torch.Tensor:
    """Less the mean over the batch at each position, padding excluded."""
    count_S = scored_BS.sum(0).clamp(min=1)
    return reward_BS - (reward_BS * scored_BS).sum(0) / count_S


def policy_loss(weight_BS: torch.Tensor, outcome: Outcome) -> torch.Tensor:
    """-mean over all positions of weight_BS log pi(a_i | ...): weight_BS carries no gradient."""
    proposal = outcome.proposal
    # log pi(a): softplus form, exact for any logit; forced positions were not drawn
    sign_BS = 1.0 - 2.0 * proposal.boundary_BS.to(proposal.logit_BS.dtype)
    logpi_BS = -F.softplus(sign_BS * proposal.logit_BS) * proposal.free_BS
    return -(weight_BS * logpi_BS).sum() / outcome.batch.valid_BS.sum()
