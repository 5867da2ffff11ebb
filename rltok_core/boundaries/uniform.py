"""Uniform random boundaries (paper.md 6): exactly round(rate * length) positions a row.

Shapes: B rows, S positions, D model width.
"""

import torch

from rltok_core.boundaries.contract import Estimator, Proposal, forced_BS
from rltok_core.boundaries.stepping import KnownStepper
from rltok_core.data.batch import Batch

GOLDEN = 0.6180339887498949


class Uniform(Estimator):
    """Draws round(rate * length) positions, first and last among them, anew for each row.

    It learns nothing; `learned` is True so that a rate curriculum moves it like the others.
    """

    learned = True

    def propose(self, x_BSD: torch.Tensor, batch: Batch, target_rate: float) -> Proposal:
        valid_BS, forced = batch.valid_BS, forced_BS(batch)
        length_B, ends_B = batch.length_B, forced.sum(1)
        count_B = (target_rate * length_B.double()).round().long()
        count_B = torch.minimum(torch.maximum(count_B, ends_B), length_B)
        # adding a fixed number modulo 1 leaves a uniform number uniform, and spreads the positions
        # evenly where all of them are equal (a constant stream: the threshold evaluation)
        u_BS = batch.stream.uniform(batch.ids_BS.shape[1]).double()
        shift_S = torch.arange(u_BS.shape[1], device=u_BS.device, dtype=torch.float64) * GOLDEN
        order_BS = ((u_BS + shift_S) % 1).masked_fill(forced, -1).masked_fill(~valid_BS, 2)
        rank_BS = order_BS.argsort(dim=1, stable=True).argsort(dim=1)
        boundary_BS = rank_BS < count_B[:, None]
        free_BS = valid_BS & ~forced
        share_B = (count_B - ends_B) / (length_B - ends_B).clamp(min=1)
        prob_BS = torch.where(free_BS, share_B[:, None], boundary_BS.double()).float()
        return Proposal(boundary_BS, prob_BS, free_BS)

    def stepper(self, batch: Batch, target_rate: float) -> KnownStepper:
        return KnownStepper(self, batch, target_rate)
