"""The paper's policy with K draws of the boundaries a row; each draw's baseline is the others'.

Leave-one-out REINFORCE (Kool, van Hoof & Welling 2019, "Buy 4 REINFORCE samples, get a baseline
for free!", ICLR workshop). The draws of a row share the byte layers below the token level; with
G_{k,i} the discounted return of draw k from position i on,
    L_pi = -mean_k mean_i [ detach(G_{k,i} - mean_{j != k} G_{j,i}) log pi(a_{k,i} | ...) ].
The other draws are independent of draw k, given the text: the baseline adds no bias, at any window
w. The early exit's log-probability and the batch's mean (paper.md 5) are not there: the first is
the same for all draws of a row, and the advantages of a row sum to zero, so that either would
cancel.

Shapes: K draws, B rows (K blocks of them in a batch), S positions.
"""

from dataclasses import dataclass

import torch

from rltok_core.boundaries.contract import LossTerm, Outcome
from rltok_core.boundaries.policy import Policy
from rltok_core.boundaries.score_function import ReturnParams, policy_loss
from rltok_core.model.scans import discounted_suffix_sum


@dataclass(frozen=True)
class Params(ReturnParams):
    """See configs/estimators/rloo.yaml."""

    samples: int

    def __post_init__(self):
        super().__post_init__()
        if self.samples < 2:
            raise ValueError(f"samples must be at least 2, got {self.samples}")


class Rloo(Policy):
    """Score-function gradient with the other draws' mean return as the baseline."""

    unbiased = {"gamma": 1.0}

    def __init__(self, params: dict, d_model: int, target_rate: float, seq_len: int):
        super().__init__(Params(**params), d_model, target_rate, seq_len)
        self.samples = self.params.samples

    def losses(self, outcome: Outcome) -> dict[str, LossTerm]:
        """L_pi and L_target; `outcome` holds the rows of all draws."""
        return_BS = discounted_suffix_sum(self.reward(outcome), self.params.gamma)
        return_KBS = return_BS.unflatten(0, (self.samples, -1))
        others_KBS = (return_KBS.sum(0) - return_KBS) / (self.samples - 1)
        policy = policy_loss((return_KBS - others_KBS).flatten(0, 1), outcome)
        return {
            "policy": LossTerm(self.params.lam_pi, policy),
            "target": self.target_term(outcome),
        }

    def reward(self, outcome: Outcome) -> torch.Tensor:
        """R_BS, detached, nats: log-probability of the next byte; 0 where nothing is scored."""
        return outcome.logp_BS.detach() * outcome.batch.scored_BS
