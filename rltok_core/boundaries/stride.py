"""Fixed stride: a boundary every round(1 / rate) positions, counted from bos.

Shapes: B rows, S positions, D model width.
"""

import torch

from rltok_core.boundaries.contract import Estimator, Proposal, fixed_proposal
from rltok_core.data.batch import Batch


class Stride(Estimator):
    """Boundaries at the multiples of round(1 / rate), and at the last position."""

    def propose(self, x_BSD: torch.Tensor, batch: Batch, target_rate: float) -> Proposal:
        index_S = torch.arange(batch.ids_BS.shape[1], device=batch.ids_BS.device)
        chosen_S = index_S % max(1, round(1 / target_rate)) == 0
        return fixed_proposal(chosen_S.expand_as(batch.ids_BS), batch)
