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
            wide_BSD = x_BSD.to(torch.promote_types(x_BSD.dtype, torch.float32))
            query_BSD, key_BSD = self.query(wide_BSD[:, :-1]), self.key(wide_BSD[:, 1:])
            cosine_BS = F.cosine_similarity(query_BSD, key_BSD, dim=-1)
            p_BS = F.pad(((1 - cosine_BS) / 2).clamp(0, 1), (1, 0), value=1.0)
            p_BS = shift_logit(p_BS, self.rate_bias)
        forced = forced_BS(batch)
        prob_BS = p_BS.masked_fill(forced, 1.0).masked_fill(~batch.valid_BS, 0.0)
        return Proposal(prob_BS > 0.5, prob_BS, batch.valid_BS & ~forced)

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
