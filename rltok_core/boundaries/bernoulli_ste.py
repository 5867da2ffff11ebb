"""The paper's policy (policy.py) with a plain straight-through gradient in the place of its own.

So policy and gradient are separated in a comparison: proposals, samples and the pressure on the
rate are those of score_function.py; what reaches the policy's weights is not.

Straight-through (Bengio, Leonard & Courville 2013, arXiv 1308.3432): a draw a ~ Bernoulli(p) is
used as it is forward, and backward its derivative with respect to p is taken to be 1. The factor
enters in one place, where token outputs have been spread to the bytes and before the U-Net adds
the byte vectors:
    z_i = Y_t(i) [choice_i],
where t(i) is the latest token at or before i, and [choice_i] says whether the choice that led there
was made: a_i at a boundary, 1 - a_i elsewhere. Forward it is 1; backward
    dL / dp_i = +<dL/dz_i, Y_t(i)> at a boundary, -<dL/dz_i, Y_t(i)> elsewhere.
It is the STE(c_i) of H-Net (paper.md 6) without the moving average. What it leaves out: the token
that the other choice would have given, later positions of the same token, and earlier boundaries'
part in a later logit (w > 1), whose a_{i-k} are constants. Forced ends carry no gradient.

Shapes: B rows, S positions, T tokens of the longest row, D model width.
"""

import torch

from rltok_core.boundaries.contract import LossTerm, Outcome, Proposal, Tokens
from rltok_core.boundaries.policy import Policy, PolicyParams


class BernoulliSte(Policy):
    """Windowed Bernoulli policy, straight-through confidence, L_target for the rate."""

    def __init__(self, params: dict, d_model: int, target_rate: float, seq_len: int):
        super().__init__(PolicyParams(**params), d_model, target_rate, seq_len)

    stepper = Policy.stepper  # the factor below is 1 forward

    def to_bytes(self, y_BTD: torch.Tensor, tokens: Tokens, proposal: Proposal) -> torch.Tensor:
        """Distribute, times a factor that is 1 forward and the choice's probability backward."""
        prob_BS = proposal.prob_BS
        choice_BS = torch.where(proposal.boundary_BS, prob_BS, 1 - prob_BS) * proposal.free_BS
        z_BSD = super().to_bytes(y_BTD, tokens, proposal)
        return z_BSD * (1 + (choice_BS - choice_BS.detach()))[..., None]

    def losses(self, outcome: Outcome) -> dict[str, LossTerm]:
        """L_target alone: the rest of the gradient comes through the network."""
        return {"target": self.target_term(outcome)}
