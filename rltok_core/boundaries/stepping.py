"""How an estimator works on rows that are read one position at a time (model/incremental.py).

A Stepper is made by Estimator.stepper for rows whose lengths and random numbers are known and
whose bytes are not: the decoder writes each position's ids (and hints) into the batch before it
asks about that position. What lies behind a position may not matter to it: that is what causal
means, so the default asks `propose` about the row so far, padded to its length.

Shapes: B rows, S positions, D model width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rltok_core.data.batch import Batch

if TYPE_CHECKING:
    from rltok_core.boundaries.contract import Estimator, Proposal


class Stepper:
    """The default: propose again at every position, select, distribute. O(S) a position."""

    def __init__(self, estimator: Estimator, batch: Batch, target_rate: float):
        self.estimator, self.batch, self.target_rate = estimator, batch, target_rate
        self._x_BSD: torch.Tensor | None = None

    def boundary(self, i: int, x_BD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(bool, float) of position i: whether there is a boundary, and its probability.

        Args:
            x_BD: byte vectors at position i; ids up to i are in self.batch.
        """
        if self._x_BSD is None:
            self._x_BSD = x_BD.new_zeros(*self.batch.ids_BS.shape, x_BD.shape[-1])
        self._x_BSD[:, i] = x_BD
        return column(self._propose(), i)

    def token(self, x_BD: torch.Tensor, boundary_B: torch.Tensor) -> torch.Tensor:
        """The token vector where there is a boundary; called once at every position."""
        return x_BD

    def spread(
        self, y_BD: torch.Tensor, boundary_B: torch.Tensor, prob_B: torch.Tensor
    ) -> torch.Tensor:
        """What each row's byte receives, from the latest token's output y_BD."""
        return y_BD

    def _propose(self) -> Proposal:
        return self.estimator.propose(self._x_BSD, self.batch, self.target_rate)


class KnownStepper(Stepper):
    """For boundaries that depend on lengths and random numbers alone: proposed once."""

    def __init__(self, estimator: Estimator, batch: Batch, target_rate: float):
        super().__init__(estimator, batch, target_rate)
        self._known: Proposal | None = None

    def boundary(self, i: int, x_BD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self._known is None:
            self._x_BSD = x_BD.new_zeros(*self.batch.ids_BS.shape, x_BD.shape[-1])
            self._known = self._propose()
        return column(self._known, i)


def column(proposal: Proposal, i: int) -> tuple[torch.Tensor, torch.Tensor]:
    """boundary_B and prob_B of position i."""
    return proposal.boundary_BS[:, i], proposal.prob_BS[:, i]


def at_ends(
    batch: Batch, i: int, boundary_B: torch.Tensor, prob_B: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Force the first and the last position of each row; nothing beyond its end."""
    forced_B = (batch.length_B == i + 1) | (i == 0)
    valid_B = batch.length_B > i
    boundary_B = (boundary_B | forced_B) & valid_B
    return boundary_B, prob_B.masked_fill(forced_B, 1.0).masked_fill(~valid_B, 0.0)
