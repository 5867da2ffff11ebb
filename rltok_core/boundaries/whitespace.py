"""Whitespace rule ("byte after a space"): a boundary at the first byte of every word.

Shapes: B rows, S positions, D model width.
"""

import torch

from rltok_core.boundaries.contract import Estimator, Proposal, fixed_proposal
from rltok_core.data.batch import Batch
from rltok_core.data.vocabulary import N_SPECIAL, WHITESPACE


class Whitespace(Estimator):
    """Boundary where a byte that is not whitespace follows one that is: seen when it is read.

    The rate is the text's, not a target's.
    """

    def propose(self, x_BSD: torch.Tensor, batch: Batch, target_rate: float) -> Proposal:
        space_C = torch.tensor(list(WHITESPACE), device=batch.ids_BS.device) + N_SPECIAL
        space_BS = torch.isin(batch.ids_BS, space_C)
        chosen_BS = torch.zeros_like(space_BS)
        chosen_BS[:, 1:] = space_BS[:, :-1] & ~space_BS[:, 1:]
        return fixed_proposal(chosen_BS, batch)
