"""The paper's estimator, with random boundaries for the first part of training.

Until `random_until` of the steps, boundaries are drawn with the target rate at every position,
whatever the policy says; the policy learns from them by the score function, each action weighted by
its importance pi(a_i | ...) / rate(a_i). After that, and in evaluation, it is score_function.py.

The weights are those of the authors' code (SamD770/bitter-lesson-tokenization,
off_policy_bitter_llm.py): of the action alone, not clipped (they can't exceed 1 / rate). The other
boundaries of the row stay random, so this is the gradient of a policy that decides at one position
among random others: biased for the loss that the policy itself would have (rltok gradlab says how
much).

Shapes: B rows, S positions.
"""

from dataclasses import dataclass

import torch

from rltok_core.boundaries import score_function
from rltok_core.boundaries.contract import Outcome
from rltok_core.boundaries.score_function import ScoreFunction
from rltok_core.data.batch import Batch


@dataclass(frozen=True)
class Params(score_function.Params):
    """See configs/estimators/off_policy.yaml."""

    random_until: float

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.random_until <= 1:
            raise ValueError(f"random_until must lie in [0, 1], got {self.random_until}")


class OffPolicy(ScoreFunction):
    """Score function whose first actions are another policy's."""

    Params = Params
    unbiased = {"gamma": 1.0, "batch_relative": False, "random_until": 0.0}

    def drawn_with(self, batch: Batch, target_rate: float) -> torch.Tensor | None:
        """The target rate everywhere until `random_until`; its forced ends count as in the rate."""
        if batch.progress >= self.params.random_until:
            return None
        free_B = (batch.length_B - 2).clamp(min=1)
        rate_B = ((target_rate * batch.length_B.double() - 2) / free_B).clamp(1e-3, 1 - 1e-3)
        return rate_B[:, None].expand(batch.ids_BS.shape)

    def advantage(self, outcome: Outcome) -> torch.Tensor:
        """A_BS, weighed by importance while others act."""
        return super().advantage(outcome) * importance(outcome)


def importance(outcome: Outcome) -> torch.Tensor:
    """pi(a_i | ...) / probability that a_i was drawn with, detached; 1 on the policy itself."""
    proposal = outcome.proposal
    if proposal.drawn_BS is None:
        return torch.ones_like(proposal.prob_BS)
    own_BS, drawn_BS = proposal.prob_BS.detach(), proposal.drawn_BS
    ratio_BS = torch.where(proposal.boundary_BS, own_BS / drawn_BS, (1 - own_BS) / (1 - drawn_BS))
    return torch.where(proposal.free_BS, ratio_BS, 1.0)
