"""The paper's policy and gradient, with a learned value of the state as the baseline.

An actor-critic (Sutton et al. 1999, "Policy gradient methods for reinforcement learning with
function approximation") in the place of paper.md 5's early-exit reward. With returns of the final
head's log-probabilities alone, in nats a byte,
    G_i = (1 / h) sum_{k >= i} gamma^(k - i) log p(byte k + 1),     h = min(1 / (1 - gamma), S),
and E_i, the same sum of the early exit's, the value is a linear map of the state:
    V_i = E_i + (u [norm(x_i), E_i] + b) / logit_scale,
    L_pi = -mean(h detach(G_i - V_i) log pi(a_i)),     L_value = mean((G_i - V_i)^2).
u and b start at zero, where this is the paper's own estimator. V depends on no boundary (x_i and E
come from before the token level), so it adds no bias. No gradient of L_value reaches the network:
x_i and both returns are constants to it. Without early_exit_input E is left out everywhere.

Shapes: B rows, S positions, D model width.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from rltok_core.boundaries.contract import LossTerm, Outcome, Proposal
from rltok_core.boundaries.policy import Policy
from rltok_core.boundaries.score_function import ReturnParams, centred, policy_loss
from rltok_core.data.batch import Batch
from rltok_core.model.scans import discounted_suffix_sum


@dataclass(frozen=True)
class Params(ReturnParams):
    """See configs/estimators/critic.yaml."""

    early_exit_input: bool
    batch_relative: bool
    lam_value: float

    def __post_init__(self):
        super().__post_init__()
        if self.lam_value < 0:
            raise ValueError(f"lam_value must not be negative, got {self.lam_value}")


class Critic(Policy):
    """Score-function gradient with a learned baseline."""

    unbiased = {"gamma": 1.0, "batch_relative": False}

    def __init__(self, params: dict, d_model: int, target_rate: float, seq_len: int):
        super().__init__(Params(**params), d_model, target_rate, seq_len)
        self.value = nn.Linear(d_model + int(self.params.early_exit_input), 1)
        nn.init.zeros_(self.value.weight)
        nn.init.zeros_(self.value.bias)
        self.horizon = min(1 / max(1 - self.params.gamma, 1e-9), float(seq_len))

    stepper = Policy.stepper

    def propose(self, x_BSD: torch.Tensor, batch: Batch, target_rate: float) -> Proposal:
        """The policy's; it hands the state on to the critic."""
        proposal = super().propose(x_BSD, batch, target_rate)
        proposal.extra["state_BSD"] = x_BSD.detach()
        return proposal

    def losses(self, outcome: Outcome) -> dict[str, LossTerm]:
        """L_pi, L_value and L_target."""
        params, scored_BS = self.params, outcome.batch.scored_BS
        return_BS = self._returns(outcome.logp_BS, scored_BS)
        early_BS = torch.zeros_like(return_BS)
        if params.early_exit_input:
            early_BS = self._returns(outcome.logp_early_BS, scored_BS)
        value_BS = self.values(outcome.proposal.extra["state_BSD"], early_BS)
        error_BS = return_BS - value_BS
        squares = (error_BS.square() * scored_BS).sum() / scored_BS.sum().clamp(min=1)
        policy = policy_loss(self.horizon * error_BS.detach() * scored_BS, outcome)
        return {
            "policy": LossTerm(params.lam_pi, policy),
            "value": LossTerm(params.lam_value, squares),
            "target": self.target_term(outcome),
        }

    def values(self, state_BSD: torch.Tensor, early_BS: torch.Tensor) -> torch.Tensor:
        """V_BS, nats a byte; early_BS: E_i, zeros where it is no input."""
        weight = self.value.weight
        with torch.autocast(state_BSD.device.type, enabled=False):
            features_BSD = F.layer_norm(state_BSD.to(weight.dtype), state_BSD.shape[-1:])
            if self.params.early_exit_input:
                early = early_BS[..., None].to(weight.dtype)
                features_BSD = torch.cat([features_BSD, early], dim=-1)
            correction_BS = self.value(features_BSD).squeeze(-1) / self.params.logit_scale
        return early_BS + correction_BS

    def _returns(self, logp_BS: torch.Tensor, scored_BS: torch.Tensor) -> torch.Tensor:
        """Detached discounted sums over the horizon; centred over the batch where asked for."""
        logp_BS = logp_BS.detach()
        if self.params.batch_relative:
            logp_BS = centred(logp_BS, scored_BS)
        return discounted_suffix_sum(logp_BS * scored_BS, self.params.gamma) / self.horizon
