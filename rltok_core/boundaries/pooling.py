"""Dynamic pooling with straight-through Gumbel boundaries (Nawrot et al. 2023, arXiv 2211.09761).

A boundary at position i ends a segment there. A segment's token is the mean of its bytes; its
output goes to the positions from i up to the next boundary, which predict the bytes i + 1 and on:
the NEXT segment's bytes (paper.md 6). The forced boundary at bos makes a first segment of its own,
so that no null token is needed.

Shapes: B rows, S positions, T tokens of the longest row, D model width.
"""

from dataclasses import dataclass, replace

import torch
from torch import nn

from rltok_core.boundaries.contract import (
    Estimator,
    LossTerm,
    Outcome,
    Proposal,
    Tokens,
    forced_BS,
    select,
)
from rltok_core.boundaries.stepping import Stepper, at_ends
from rltok_core.data.batch import Batch

U_MIN = 2.0**-25  # half of the stream's step: keeps the logistic noise finite


@dataclass(frozen=True)
class Params:
    """temperature: of the relaxed Bernoulli; prior_weight: of the binomial prior (both 1)."""

    temperature: float
    prior_weight: float

    def __post_init__(self):
        if self.temperature <= 0:
            raise ValueError(f"temperature must be positive, got {self.temperature}")


def straight_through(proposal: Proposal) -> torch.Tensor:
    """b_BS: 0 or 1 forward, the relaxed sample's gradient backward where the choice was free."""
    soft_BS = proposal.extra["soft_BS"] * proposal.free_BS
    return proposal.boundary_BS + (soft_BS - soft_BS.detach())


class Pooling(Estimator):
    """MLP predictor, relaxed Bernoulli, mean pooling, binomial prior on the boundary count."""

    learned = True

    def __init__(self, params: dict, d_model: int, target_rate: float, seq_len: int):
        super().__init__(params, d_model, target_rate, seq_len)
        self.params = Params(**params)
        self.predictor = nn.Sequential(
            nn.Linear(d_model, d_model), nn.ReLU(), nn.Linear(d_model, 1)
        )

    def propose(self, x_BSD: torch.Tensor, batch: Batch, target_rate: float) -> Proposal:
        """Relaxed Bernoulli samples, thresholded at 0.5, which is u < sigmoid(logit)."""
        logit_BS = self._logit(x_BSD)
        soft_BS = self._soft(logit_BS, batch.stream.uniform(logit_BS.shape[1]))
        forced = forced_BS(batch)
        boundary_BS = ((soft_BS > 0.5) | forced) & batch.valid_BS
        free_BS = batch.valid_BS & ~forced
        prob_BS = torch.where(free_BS, torch.sigmoid(logit_BS), boundary_BS.to(logit_BS.dtype))
        return Proposal(boundary_BS, prob_BS, free_BS, logit_BS, extra={"soft_BS": soft_BS})

    def _logit(self, x_BSD: torch.Tensor) -> torch.Tensor:
        with torch.autocast(x_BSD.device.type, enabled=False):
            wide_BSD = x_BSD.to(torch.promote_types(x_BSD.dtype, torch.float32))
            return self.predictor(wide_BSD).squeeze(-1) + self.rate_bias

    def _soft(self, logit_BS: torch.Tensor, u_BS: torch.Tensor) -> torch.Tensor:
        """Relaxed Bernoulli samples."""
        u_BS = u_BS.to(logit_BS.dtype).clamp(min=U_MIN)
        return torch.sigmoid((logit_BS - torch.logit(u_BS)) / self.params.temperature)

    def stepper(self, batch: Batch, target_rate: float) -> "PoolingStepper":
        return PoolingStepper(self, batch, target_rate)

    def to_tokens(self, x_BSD: torch.Tensor, proposal: Proposal) -> Tokens:
        """Mean of each segment; a boundary's gradient moves the later bytes of its segment.

        A byte's share in its segment s is 1 - (s - its segment's number), where the number is the
        count of boundaries before it: 1 forward, and the derivative of the count backward.
        """
        tokens = select(x_BSD, proposal.boundary_BS)
        with torch.autocast(x_BSD.device.type, enabled=False):
            b_BS = straight_through(proposal)
            wide_BSD = x_BSD.to(torch.promote_types(x_BSD.dtype, b_BS.dtype))
            before_BS = b_BS.cumsum(1) - b_BS
            share_BS = 1 + (before_BS - before_BS.detach())
            # a row's padding falls into the slot after its last segment: never a valid token
            segment_BS = proposal.boundary_BS.cumsum(1) - proposal.boundary_BS.long()
            shape = (len(x_BSD), tokens.valid_BT.shape[1] + 1)
            size_BT = share_BS.new_zeros(shape).scatter_add(1, segment_BS, share_BS)
            total_BTD = wide_BSD.new_zeros(*shape, wide_BSD.shape[2]).scatter_add(
                1, segment_BS[..., None].expand_as(wide_BSD), share_BS[..., None] * wide_BSD
            )
            mean_BTD = (total_BTD / size_BT.clamp(min=1)[..., None])[:, :-1]
            mean_BTD = mean_BTD * tokens.valid_BT[..., None]
        return replace(tokens, x_BTD=mean_BTD.to(x_BSD.dtype))

    def losses(self, outcome: Outcome) -> dict[str, LossTerm]:
        """-log Binomial(boundaries; positions, rate) / positions, mean over rows, in nats.

        The forced ends count, so that the prior is on the realised rate.
        """
        length_B = outcome.batch.length_B.to(outcome.logp_BS.dtype)
        count_B = straight_through(outcome.proposal).sum(1).to(length_B.dtype)
        rate = min(outcome.target_rate, 1 - 1e-3)
        binomial = torch.distributions.Binomial(
            length_B, torch.full_like(length_B, rate), validate_args=False
        )
        prior = -(binomial.log_prob(count_B) / length_B).mean()
        return {"prior": LossTerm(self.params.prior_weight, prior)}


class PoolingStepper(Stepper):
    """Keeps the sum and the size of each row's open segment."""

    def __init__(self, estimator: Pooling, batch: Batch, target_rate: float):
        super().__init__(estimator, batch, target_rate)
        self._u_BS = batch.stream.uniform(batch.ids_BS.shape[1])
        self._sum_BD: torch.Tensor | None = None
        self._size_B1: torch.Tensor | None = None

    def boundary(self, i: int, x_BD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logit_B = self.estimator._logit(x_BD)
        soft_B = self.estimator._soft(logit_B, self._u_BS[:, i])
        return at_ends(self.batch, i, soft_B > 0.5, torch.sigmoid(logit_B))

    def token(self, x_BD: torch.Tensor, boundary_B: torch.Tensor) -> torch.Tensor:
        if self._sum_BD is None:
            self._sum_BD, self._size_B1 = torch.zeros_like(x_BD), x_BD.new_zeros(len(x_BD), 1)
        sum_BD, size_B1 = self._sum_BD + x_BD, self._size_B1 + 1
        keep_B1 = ~boundary_B[:, None]
        self._sum_BD, self._size_B1 = sum_BD * keep_B1, size_B1 * keep_B1
        return sum_BD / size_B1
