"""The planted language's true boundaries: what a perfect estimator would choose.

Shapes: B rows, S positions, D model width.
"""

import torch

from rltok_core.boundaries.contract import Estimator, Proposal, hinted_proposal
from rltok_core.data.batch import Batch


class Oracle(Estimator):
    """A boundary at the last byte of every code word, which is the first that tells it apart."""

    hint = "truth"

    def propose(self, x_BSD: torch.Tensor, batch: Batch, target_rate: float) -> Proposal:
        return hinted_proposal(batch, "oracle")
