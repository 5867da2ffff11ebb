"""H-Net's dynamic chunking (Hwang, Wang & Gu 2025, arXiv 2507.07955), as in paper.md 6.

Routing: p_i = (1 - cos(Wq x_{i-1}, Wk x_i)) / 2, a boundary where p_i > 0.5. De-chunking: an
exponential moving average over the tokens, z_t = p_t y_t + (1 - p_t) z_{t-1}, spread to the bytes
and multiplied by STE(c_i): 1 forward, the derivative of c_i backward.

Shapes: B rows, S positions, T tokens of the longest row, D model width.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from rltok_core.boundaries.contract import (
    Estimator,
    LossTerm,
    Outcome,
    Proposal,
    Tokens,
    distribute,
    forced_BS,
)
from rltok_core.boundaries.stepping import Stepper, at_ends
from rltok_core.data.batch import Batch
from rltok_core.model.scans import ema_scan

P_MIN = 1e-4  # of the moving average
RATE_MAX = 0.95  # the ratio loss's factor N / (N - 1) is singular at N = 1


@dataclass(frozen=True)
class Params:
    """ratio_weight: weight of the ratio loss (published: 0.03)."""

    ratio_weight: float

    def __post_init__(self):
        if self.ratio_weight < 0:
            raise ValueError(f"ratio_weight must not be negative, got {self.ratio_weight}")


def shift_logit(p: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """sigmoid(logit(p) + bias), written so that bias 0 gives p and its gradient bit for bit."""
    odds = torch.expm1(bias)
    return p + p * (1 - p) * odds / (1 + p * odds)


class HNet(Estimator):
    """Routing by the dissimilarity of neighbours, straight-through confidence, ratio loss."""

    learned = True

    def __init__(self, params: dict, d_model: int, target_rate: float, seq_len: int):
        super().__init__(params, d_model, target_rate, seq_len)
        self.params = Params(**params)
        self.query = nn.Linear(d_model, d_model, bias=False)
        self.key = nn.Linear(d_model, d_model, bias=False)
        for projection in (self.query, self.key):
            nn.init.eye_(projection.weight)

    def propose(self, x_BSD: torch.Tensor, batch: Batch, target_rate: float) -> Proposal:
        """Boundaries where neighbours differ. The forced ends have p = 1 and no gradient."""
        with torch.autocast(x_BSD.device.type, enabled=False):
            p_BS = F.pad(self._difference(x_BSD[:, :-1], x_BSD[:, 1:]), (1, 0), value=1.0)
            p_BS = shift_logit(p_BS, self.rate_bias)
        forced = forced_BS(batch)
        prob_BS = p_BS.masked_fill(forced, 1.0).masked_fill(~batch.valid_BS, 0.0)
        return Proposal(prob_BS > 0.5, prob_BS, batch.valid_BS & ~forced)

    def _difference(self, before_BSD: torch.Tensor, x_BSD: torch.Tensor) -> torch.Tensor:
        """(1 - cos(Wq x_{i-1}, Wk x_i)) / 2, in float32 at least."""
        wide = torch.promote_types(x_BSD.dtype, torch.float32)
        query_BSD, key_BSD = self.query(before_BSD.to(wide)), self.key(x_BSD.to(wide))
        return ((1 - F.cosine_similarity(query_BSD, key_BSD, dim=-1)) / 2).clamp(0, 1)

    def stepper(self, batch: Batch, target_rate: float) -> "HNetStepper":
        return HNetStepper(self, batch, target_rate)

    def to_bytes(self, y_BTD: torch.Tensor, tokens: Tokens, proposal: Proposal) -> torch.Tensor:
        """Moving average over tokens, spread to bytes, times the straight-through confidence."""
        prob_BS = proposal.prob_BS
        p_BT = prob_BS.gather(1, tokens.position_BT).clamp(P_MIN, 1 - P_MIN)
        z_BSD = distribute(ema_scan(y_BTD, p_BT), tokens.index_BS)
        confidence_BS = torch.where(proposal.boundary_BS, prob_BS, 1 - prob_BS)
        return z_BSD * (1 + (confidence_BS - confidence_BS.detach()))[..., None]

    def losses(self, outcome: Outcome) -> dict[str, LossTerm]:
        """Ratio loss N/(N-1) ((N-1) F G + (1-F) (1-G)): F mean boundary, G mean p, N = 1/rate.

        At rate 1 every boundary is given (a curriculum's open phase): nothing to steer, 0.
        """
        proposal, count = outcome.proposal, outcome.batch.valid_BS.sum()
        share = proposal.boundary_BS.sum() / count
        mean_p = proposal.prob_BS.sum() / count
        n = 1 / min(outcome.target_rate, RATE_MAX)
        ratio = n / (n - 1) * ((n - 1) * share * mean_p + (1 - share) * (1 - mean_p))
        if outcome.target_rate >= 1:
            ratio = 0 * mean_p
        return {"ratio": LossTerm(self.params.ratio_weight, ratio)}


class HNetStepper(Stepper):
    """Keeps the byte vector before, and the moving average's state."""

    def __init__(self, estimator: HNet, batch: Batch, target_rate: float):
        super().__init__(estimator, batch, target_rate)
        self._before_BD: torch.Tensor | None = None
        self._z_BD: torch.Tensor | None = None

    def boundary(self, i: int, x_BD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self._before_BD is None:
            prob_B = x_BD.new_ones(len(x_BD))
        else:
            prob_B = self.estimator._difference(self._before_BD, x_BD)
            prob_B = shift_logit(prob_B, self.estimator.rate_bias)
        self._before_BD = x_BD
        return at_ends(self.batch, i, prob_B > 0.5, prob_B)

    def spread(
        self, y_BD: torch.Tensor, boundary_B: torch.Tensor, prob_B: torch.Tensor
    ) -> torch.Tensor:
        if self._z_BD is None:
            self._z_BD = torch.zeros_like(y_BD)
        p_B1 = prob_B.clamp(P_MIN, 1 - P_MIN)[:, None]
        moved_BD = p_B1 * y_BD + (1 - p_B1) * self._z_BD
        self._z_BD = torch.where(boundary_B[:, None], moved_BD, self._z_BD)
        return self._z_BD
