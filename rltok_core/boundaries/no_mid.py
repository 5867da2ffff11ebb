"""No boundaries but the forced ends: with n_mid = 0 the floor of a comparison.

Shapes: B rows, S positions, D model width.
"""

import torch

from rltok_core.boundaries.contract import Estimator, Proposal, fixed_proposal
from rltok_core.data.batch import Batch


class NoMid(Estimator):
    """The forced ends alone."""

    def propose(self, x_BSD: torch.Tensor, batch: Batch, target_rate: float) -> Proposal:
        return fixed_proposal(torch.zeros_like(batch.valid_BS), batch)
