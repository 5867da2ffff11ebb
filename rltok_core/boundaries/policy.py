"""The paper's stochastic boundary policy (paper.md 4), for every estimator that trains it.

V_i = W x_i with w outputs;
    l_i = softcap((sum_{k<w} V_{i,k} a_{i-k} + V_{i,w}) / 16 + logit(target)),
    a_i ~ Bernoulli(sigmoid(l_i)).
w = 1 is the authors' code's meaning: the current byte alone (ledger 4). How W learns is a
subclass's matter (score_function.py, bernoulli_ste.py); the pressure on the rate is the same.

Shapes: B rows, S positions, D model width, w policy outputs (the last is the bias term).
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from rltok_core.boundaries.contract import Estimator, LossTerm, Outcome, Proposal, forced_BS
from rltok_core.boundaries.sampling import sample_boundaries
from rltok_core.boundaries.stepping import Stepper, at_ends
from rltok_core.data.batch import Batch


@dataclass(frozen=True)
class PolicyParams:
    """See configs/estimators/score_function.yaml; symbols of paper.md 4 and 5."""

    window: int
    lam_target: float
    softcap: float
    logit_scale: float
    softcap_in_evaluation: bool

    def __post_init__(self):
        if self.window < 1:
            raise ValueError(f"window must be at least 1, got {self.window}")


class Policy(Estimator):
    """Samples boundaries from the windowed policy; a subclass says how its weights learn.

    Args:
        params: the subclass's own, already checked.
        d_model, target_rate, seq_len: as for every estimator.
    """

    learned = True

    def __init__(self, params: PolicyParams, d_model: int, target_rate: float, seq_len: int):
        super().__init__({}, d_model, target_rate, seq_len)
        self.params = params
        self.policy = nn.Linear(d_model, int(params.window), bias=False)

    def _cap(self) -> float:
        on = self.training or self.params.softcap_in_evaluation
        return self.params.softcap if on else 0.0

    def _outputs(self, x_BSD: torch.Tensor) -> torch.Tensor:
        """V / 16, float32 at least: a bf16 logit would quantise the probabilities."""
        with torch.autocast(x_BSD.device.type, enabled=False):
            wide_BSD = x_BSD.to(torch.promote_types(x_BSD.dtype, torch.float32))
            return self.policy(wide_BSD) / self.params.logit_scale

    def _prior(self, target_rate: float) -> torch.Tensor:
        rate = min(max(target_rate, 1e-4), 1 - 1e-3)
        return math.log(rate / (1 - rate)) + self.rate_bias

    def stepper(self, batch: Batch, target_rate: float) -> "PolicyStepper":
        return PolicyStepper(self, batch, target_rate)

    def propose(self, x_BSD: torch.Tensor, batch: Batch, target_rate: float) -> Proposal:
        """Sample boundaries, then every logit in one vectorised pass that carries the gradient."""
        width = self.policy.out_features
        v_BSw, prior_logit = self._outputs(x_BSD), self._prior(target_rate)
        forced, cap = forced_BS(batch), self._cap()
        u_BS = batch.stream.uniform(batch.ids_BS.shape[1])
        drawn_BS = self.drawn_with(batch, target_rate)
        if drawn_BS is not None:
            a_BS = ((u_BS < drawn_BS) | forced) & batch.valid_BS
        elif width == 1:
            logit_BS = _capped(v_BSw[..., 0] + prior_logit, cap)
            a_BS = ((u_BS < torch.sigmoid(logit_BS.detach())) | forced) & batch.valid_BS
        else:
            a_BS = sample_boundaries(v_BSw, u_BS, forced, batch.length_B, prior_logit, cap)
        z_BS = v_BSw[..., 0]
        if width > 1:
            # history_BSw[..., k - 1] = a_{i-k}, zero before the row's start; last column: bias
            history_BSw = F.pad(a_BS.to(v_BSw.dtype), (width - 1, 0)).unfold(1, width, 1)
            history_BSw = torch.cat(
                [history_BSw[..., :-1].flip(-1), torch.ones_like(v_BSw[..., :1])], dim=-1
            )
            z_BS = (v_BSw * history_BSw).sum(-1)
        logit_BS = _capped(z_BS + prior_logit, cap)
        free_BS = batch.valid_BS & ~forced
        prob_BS = torch.where(free_BS, torch.sigmoid(logit_BS), a_BS.to(logit_BS.dtype))
        return Proposal(a_BS, prob_BS, free_BS, logit_BS, drawn_BS=drawn_BS)

    def drawn_with(self, batch: Batch, target_rate: float) -> torch.Tensor | None:
        """Probabilities to draw boundaries with (Proposal.drawn_BS); None: the policy's own."""
        return None

    def target_term(self, outcome: Outcome) -> LossTerm:
        """L_target of paper.md 5: mean(l) x detach(mean(p) - target), a push on the logits."""
        proposal, free_BS = outcome.proposal, outcome.proposal.free_BS
        mean_logit = (proposal.logit_BS * free_BS).sum() / free_BS.sum().clamp(min=1)
        # forced ends count as probability 1, so that the REALISED rate meets the target
        mean_prob = proposal.prob_BS.detach().sum() / outcome.batch.valid_BS.sum()
        return LossTerm(self.params.lam_target, mean_logit * (mean_prob - outcome.target_rate))


class PolicyStepper(Stepper):
    """Keeps the last w - 1 boundaries of each row."""

    def __init__(self, policy: Policy, batch: Batch, target_rate: float):
        super().__init__(policy, batch, target_rate)
        self._u_BS = batch.stream.uniform(batch.ids_BS.shape[1])
        self._prior, self._cap = policy._prior(target_rate), policy._cap()
        # a_{i-1}, a_{i-2}, ..., and 1 for the bias term, as columns of V multiply them
        self._history_Bw = torch.zeros(len(batch.ids_BS), policy.policy.out_features)
        self._history_Bw = self._history_Bw.to(self._u_BS.device)
        self._history_Bw[:, -1] = 1

    def boundary(self, i: int, x_BD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        v_Bw = self.estimator._outputs(x_BD)
        logit_B = _capped((v_Bw * self._history_Bw).sum(-1) + self._prior, self._cap)
        prob_B = torch.sigmoid(logit_B)
        boundary_B, prob_B = at_ends(self.batch, i, self._u_BS[:, i] < prob_B, prob_B)
        if self._history_Bw.shape[1] > 1:
            older_Bw = self._history_Bw[:, :-2].clone()
            self._history_Bw[:, 1:-1] = older_Bw
            self._history_Bw[:, 0] = boundary_B.to(self._history_Bw.dtype)
        return boundary_B, prob_B


def _capped(z: torch.Tensor, cap: float) -> torch.Tensor:
    """softcap_c(z) = c tanh(z / c); unchanged for c = 0."""
    return cap * torch.tanh(z / cap) if cap > 0 else z
