"""The contract of an estimator: one class that says where token boundaries go and how it learns.

An estimator is one file with one subclass of Estimator and one YAML in configs/estimators (or in
a plugin folder) that names the class and every parameter. Training, evaluation, tables, figures
and the shared tests find it through the registry.

Shapes: B rows, S positions (bytes, with bos first), T tokens of the longest row, D model width.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import nn

from rltok_core.boundaries.stepping import Stepper
from rltok_core.data.batch import Batch
from rltok_core.errors import UserError


@dataclass
class Proposal:
    """Where the boundaries are.

    Attributes:
        boundary_BS: bool, forced ends included, False on padding.
        prob_BS: float, the probability (or weight) of a boundary: what heat maps show. For a
            deterministic rule it is boundary_BS as float.
        free_BS: bool, positions that the estimator itself decided (neither forced nor padding).
        logit_BS: float, with gradient, for those that learn; None for rules.
        drawn_BS: float, the probabilities that the free boundaries were drawn with, position by
            position, where these aren't prob_BS.
        extra: whatever the estimator wants to hand on to its own later methods.
    """

    boundary_BS: torch.Tensor
    prob_BS: torch.Tensor
    free_BS: torch.Tensor
    logit_BS: torch.Tensor | None = None
    drawn_BS: torch.Tensor | None = None
    extra: dict[str, torch.Tensor] = field(default_factory=dict)


@dataclass
class Tokens:
    """The token level's input.

    Attributes:
        x_BTD: vectors, zero on padding.
        position_BT: int64, the byte position of each token (RoPE uses it; ledger 3).
        valid_BT: bool.
        index_BS: int64, the latest token at or before each byte position.
        total: tokens of all rows.
    """

    x_BTD: torch.Tensor
    position_BT: torch.Tensor
    valid_BT: torch.Tensor
    index_BS: torch.Tensor
    total: int


@dataclass
class Outcome:
    """What an estimator's loss may look at, after both heads have predicted.

    Attributes:
        batch, proposal: as given to / returned by propose.
        logp_BS: float32 log-probability (nats) of the next byte by the final head; 0 where
            nothing is predicted. Carries gradient.
        logp_early_BS: the same by the early exit.
        target_rate: the rate asked for at this step (a curriculum may move it).
    """

    batch: Batch
    proposal: Proposal
    logp_BS: torch.Tensor
    logp_early_BS: torch.Tensor
    target_rate: float


@dataclass(frozen=True)
class HintReader:
    """Prepared boundaries on text that the preparation never saw.

    Attributes:
        whole: documents -> bool, one a byte, the documents one after the other.
        last: a document's bytes so far -> whether the last of them has a boundary; None where
            that depends on bytes that come after it.
    """

    whole: Callable[[list[bytes]], np.ndarray]
    last: Callable[[bytes], bool] | None


class LossTerm(NamedTuple):
    """weight * value is added to the loss; both are logged under the term's name."""

    weight: float
    value: torch.Tensor


def forced_BS(batch: Batch) -> torch.Tensor:
    """bool: the first and the last valid position of each row, whose boundary is forced to 1."""
    forced_BS = torch.zeros_like(batch.ids_BS, dtype=torch.bool)
    forced_BS[:, 0] = True
    forced_BS.scatter_(1, (batch.length_B - 1)[:, None], True)
    return forced_BS


def select(x_BSD: torch.Tensor, boundary_BS: torch.Tensor) -> Tokens:
    """SELECT (paper.md 2): the byte vectors at boundaries, padded to the longest row."""
    count_B = boundary_BS.sum(1)
    # the one look of a forward and backward pass at what the device has computed
    width_T, total = torch.stack([count_B.max(), count_B.sum()]).tolist()
    # a stable descending sort of the mask lists each row's boundary positions in order
    position_BT = torch.sort(boundary_BS.to(torch.int8), dim=1, descending=True, stable=True)[1]
    position_BT = position_BT[:, :width_T]
    valid_BT = torch.arange(width_T, device=x_BSD.device)[None, :] < count_B[:, None]
    x_BTD = torch.gather(x_BSD, 1, position_BT[..., None].expand(-1, -1, x_BSD.shape[-1]))
    x_BTD = x_BTD * valid_BT[..., None]
    index_BS = (boundary_BS.cumsum(1) - 1).clamp(min=0)
    return Tokens(x_BTD, position_BT * valid_BT, valid_BT, index_BS, total)


def distribute(y_BTD: torch.Tensor, index_BS: torch.Tensor) -> torch.Tensor:
    """DISTRIBUTE (paper.md 2): byte i receives the output of the latest token at or before i."""
    return torch.gather(y_BTD, 1, index_BS[..., None].expand(-1, -1, y_BTD.shape[-1]))


class Estimator(nn.Module):
    """Base class: select, distribute-then-add, no loss of its own.

    Class attributes say what every table has to know:
        causal: boundaries up to i use bytes up to i only.
        learned: it has a target-rate curriculum and controller, if these are switched on.
        hint: None, "truth" (the planted language's boundaries) or "prepared" (prepare() writes
            them beforehand).
        samples: draws of the boundaries for each row in training (evaluation has one). They share
            the down layers' work; propose() and losses() see the rows of the first draw, then
            those of the second, ... (batch.samples).
        antithetic: every second draw uses the mirrored uniform numbers of the one before.
        unbiased: parameters with which the gradient on the estimator's own weights is that of the
            expected loss, which the shared tests check by enumeration; None: no such promise.

    Args:
        params: the YAML's params, each of them a keyword of the subclass's Params dataclass.
        d_model: width D of the byte vectors.
        target_rate: boundaries per position asked for, forced ends included.
        seq_len: positions S of a training sequence.
    """

    causal: bool = True
    learned: bool = False
    hint: str | None = None
    samples: int = 1
    antithetic: bool = False
    unbiased: ClassVar[dict | None] = None

    def __init__(self, params: dict, d_model: int, target_rate: float, seq_len: int):
        super().__init__()
        if params and type(self).__init__ is Estimator.__init__:
            raise TypeError(f"{type(self).__name__} takes no parameters, got {sorted(params)}")
        self.d_model, self.target_rate, self.seq_len = d_model, target_rate, seq_len
        # what the rate controller adds to the logits; saved with the weights
        self.register_buffer("rate_bias", torch.zeros((), dtype=torch.float32))

    def propose(self, x_BSD: torch.Tensor, batch: Batch, target_rate: float) -> Proposal:
        """Choose boundaries from byte vectors x_BSD, byte ids and batch.stream."""
        raise NotImplementedError

    def to_tokens(self, x_BSD: torch.Tensor, proposal: Proposal) -> Tokens:
        """Bytes to tokens; the default is select."""
        return select(x_BSD, proposal.boundary_BS)

    def to_bytes(self, y_BTD: torch.Tensor, tokens: Tokens, proposal: Proposal) -> torch.Tensor:
        """Token outputs to bytes, y_BSD; the U-Net adds x_BSD. The default is distribute."""
        return distribute(y_BTD, tokens.index_BS)

    def losses(self, outcome: Outcome) -> dict[str, LossTerm]:
        """The estimator's own loss terms by name."""
        return {}

    def stepper(self, batch: Batch, target_rate: float) -> Stepper:
        """How it works one position at a time, for rows of known lengths and streams.

        Whoever overrides to_tokens or to_bytes (or propose, below a class with a stepper of its
        own) overrides this too; else a decoder runs the whole network again at each position.
        """
        return Stepper(self, batch, target_rate)

    @classmethod
    def prepare(cls, data: Path, out: Path, params: dict, target_rate: float) -> None:
        """For hint = "prepared": write out/SPLIT.hints.npy (uint8, one a byte of the store) for
        every split of the data folder, and out/preparation.json with what was measured."""
        raise NotImplementedError(f"{cls.__name__} has nothing to prepare")

    @classmethod
    def hint_reader(cls, params: dict, data: Path | None, prepared: Path | None) -> HintReader:
        """For hint = "prepared": the boundaries of other text, by what prepare() left.

        Args:
            data: the data folder that was prepared; None if not given.
            prepared: what prepare() wrote; None if not given.

        Raises:
            UserError: it can't, or a folder is missing that it needs.
        """
        raise UserError(f"{cls.__name__} can't place boundaries on text that wasn't prepared")


def fixed_proposal(chosen_BS: torch.Tensor, batch: Batch) -> Proposal:
    """The proposal of a rule: `chosen_BS` plus the forced ends, no gradient."""
    forced = forced_BS(batch)
    boundary_BS = (chosen_BS | forced) & batch.valid_BS
    return Proposal(boundary_BS, boundary_BS.float(), batch.valid_BS & ~forced)


def hinted_proposal(batch: Batch, name: str) -> Proposal:
    """The proposal of a rule whose boundaries are known beforehand (batch.hint_BS).

    Raises:
        UserError: the batch carries no hints; `name` is the estimator's, for the message.
    """
    if batch.hint_BS is None:
        raise UserError(f"estimator {name!r} needs known boundaries, and this batch has none")
    return fixed_proposal(batch.hint_BS, batch)
