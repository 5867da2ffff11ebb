"""Every boundary sequence of a short row at once: probabilities, losses, gradients, in float64.

The problem that the laboratory puts to an estimator: rows of S bytes each, boundaries a drawn by
its own policy, and
    J = E_a[ L(a) ],   L(a) = -sum_i log p(x_{i+1} | ..., a) / positions   (nats a position).
With both ends forced a row has M = 2^(S - 2) boundary sequences, so that J, its gradient and the
moments of any estimate of it are finite sums. exact_gradient() is autograd of the enumerated J,
with every straight-through path cut (what an estimator adds to the backward pass is no part of
J's gradient). Where real and straight-through paths can't be told apart, through_probabilities()
does without a backward pass through the network.

per_sequence_gradients() finds the gradients of all M sequences in one backward pass: each row of
the batch is given weights of its own (PerRow), whose gradients are then the rows'.

Shapes: M sequences of a row, B rows, S positions, D model width, P parameters, V vocabulary.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

from rltok_core.boundaries.contract import Estimator, Outcome, Proposal
from rltok_core.data.batch import Batch
from rltok_core.data.stream import RandomStream
from rltok_core.model.unet import UNet, target_logp

U_NONE = 1 - 2.0**-24  # the largest number of the stream: draws no boundary, as 0 draws one


class NotEnumerable(Exception):
    """The estimator's boundaries don't follow the numbers of its stream one by one."""


class FixedStream(RandomStream):
    """Uniforms given outright."""

    def __init__(self, u_BS: torch.Tensor):
        super().__init__([0] * len(u_BS))
        self.u_BS = u_BS

    def uniform(self, length: int, channel: str = "boundary") -> torch.Tensor:
        return self.u_BS

    def repeated(self, samples: int, antithetic: bool) -> "FixedStream":
        """Every draw has numbers of its own already."""
        return self


def all_sequences(length: int) -> torch.Tensor:
    """bool (2^(length - 2), length): every boundary sequence with both ends forced."""
    place = torch.arange(length - 3, -1, -1)
    inner = torch.arange(2 ** (length - 2))[:, None] >> place & 1
    return F.pad(inner.bool(), (1, 1), value=True)


def batch_of(ids_BS: torch.Tensor, a_BS: torch.Tensor, u_BS: torch.Tensor | None = None) -> Batch:
    """A batch of whole rows whose stream draws the boundaries a_BS (or is u_BS)."""
    if u_BS is None:
        u_BS = torch.where(a_BS, 0.0, U_NONE)
    ids_BS = ids_BS.expand(len(a_BS), -1)
    return Batch(ids_BS, torch.full((len(a_BS),), ids_BS.shape[1]), FixedStream(u_BS))


class Watched(nn.Module):
    """Stands in for an estimator in the U-Net: keeps its proposal, and may alter what goes on.

    Args:
        cut: hand on the proposal without gradient, so that no straight-through path is left.
        impose: (boundary_BS, prob_BS) to put in the place of the estimator's own.
    """

    def __init__(self, inner: Estimator, cut: bool = False, impose: tuple | None = None):
        super().__init__()
        self.inner, self.cut, self.impose = inner, cut, impose
        # a curriculum has no place here: no open phase, and no rate is above its own
        self.learned, self.target_rate = False, 1.0
        self.antithetic = inner.antithetic
        self.proposal: Proposal | None = None

    def propose(self, x_BSD, batch, target_rate):
        self.proposal = self.inner.propose(x_BSD, batch, target_rate)
        if self.impose is not None:
            boundary_BS, prob_BS = self.impose
            self.proposal = replace(self.proposal, boundary_BS=boundary_BS, prob_BS=prob_BS)
        return without_gradient(self.proposal) if self.cut else self.proposal

    def to_tokens(self, x_BSD, proposal):
        return self.inner.to_tokens(x_BSD, proposal)

    def to_bytes(self, y_BTD, tokens, proposal):
        return self.inner.to_bytes(y_BTD, tokens, proposal)


def without_gradient(proposal: Proposal) -> Proposal:
    """The same numbers, detached."""
    return replace(
        proposal,
        prob_BS=proposal.prob_BS.detach(),
        logit_BS=None if proposal.logit_BS is None else proposal.logit_BS.detach(),
        drawn_BS=None if proposal.drawn_BS is None else proposal.drawn_BS.detach(),
        extra={name: value.detach() for name, value in proposal.extra.items()},
    )


@contextlib.contextmanager
def watched(model: UNet, **how) -> Iterator[Watched]:
    """The U-Net with its estimator watched, for the time of a `with`."""
    inner = model.estimator
    model.estimator = Watched(inner, **how)
    try:
        yield model.estimator
    finally:
        model.estimator = inner


def log_probability(proposal: Proposal) -> torch.Tensor:
    """log pi(a) of each row, with gradient: the free positions' Bernoulli probabilities."""
    chosen_BS = torch.where(proposal.boundary_BS, proposal.prob_BS, 1 - proposal.prob_BS)
    return torch.where(proposal.free_BS, chosen_BS, 1.0).log().sum(1)


def draw_probabilities(proposal: Proposal) -> Proposal:
    """The proposal with the probabilities that its boundaries were drawn with as its own."""
    drawn_BS = proposal.drawn_BS
    if drawn_BS is None:
        return proposal
    prob_BS = torch.where(proposal.free_BS, drawn_BS, proposal.prob_BS)
    return replace(proposal, prob_BS=prob_BS, drawn_BS=None)


def _forward(
    model: UNet, batch: Batch, rate: float, samples: int = 1, **how
) -> tuple[Outcome, Proposal]:
    with watched(model, **how) as seen:
        prediction = model(batch, rate, samples=samples)
        batch = prediction.batch
        logp_BS, early_BS = target_logp(prediction, batch)
    return Outcome(batch, prediction.proposal, logp_BS, early_BS, rate), seen.proposal


def outcome_of(
    model: UNet, batch: Batch, rate: float, a_BS: torch.Tensor, samples: int = 1
) -> Outcome:
    """The U-Net on a batch made by batch_of, with `samples` draws whose numbers its stream has.

    Raises:
        NotEnumerable: it draws other boundaries than a_BS.
    """
    outcome, proposal = _forward(model, batch, rate, samples)
    _require(proposal.boundary_BS, a_BS)
    return outcome


def _require(drawn_BS: torch.Tensor, a_BS: torch.Tensor) -> None:
    if not torch.equal(drawn_BS, a_BS):
        raise NotEnumerable("its boundaries don't follow its stream position by position")


def expected_loss(model: UNet, ids_BS: torch.Tensor, rate: float) -> torch.Tensor:
    """J of a batch of whole rows, with its exact gradient; nats a position.

    Raises:
        NotEnumerable: the estimator isn't stochastic, or not position by position.
    """
    a_MS = all_sequences(ids_BS.shape[1])
    total = 0.0
    for ids_S in ids_BS:
        outcome, proposal = _forward(model, batch_of(ids_S, a_MS), rate, cut=True)
        _require(proposal.boundary_BS, a_MS)
        total = total - log_probability(proposal).exp() @ outcome.logp_BS.sum(1)
    return total / ids_BS.numel()


def flat(parameters: list[torch.Tensor], gradients: tuple, rows: int | None = None):
    """One vector (P), or (rows, P), from autograd.grad's answer; None is zero."""
    shape = (-1,) if rows is None else (rows, -1)
    return torch.cat(
        [
            (torch.zeros_like(p) if g is None else g).reshape(shape)
            for p, g in zip(parameters, gradients, strict=True)
        ],
        dim=-1,
    )


def exact_gradient(model: UNet, ids_BS: torch.Tensor, rate: float) -> torch.Tensor:
    """(B, P): the gradient of each row's J alone; the batch's is their mean."""
    parameters = list(model.parameters())
    rows = []
    for ids_S in ids_BS:
        loss = expected_loss(model, ids_S[None], rate)
        rows.append(flat(parameters, torch.autograd.grad(loss, parameters, allow_unused=True)))
    return torch.stack(rows)


def through_probabilities(
    model: UNet, ids_BS: torch.Tensor, rate: float, twin: bool, step: float = 1e-5
) -> torch.Tensor:
    """(P): a gradient of a deterministic estimator's problem on the estimator's own parameters.

    No backward pass goes through the network, where real and straight-through paths can't be told
    apart: the loss is differentiated by each free probability p_i by central differences, and
    p_i by the parameters by autograd. Zero for all other parameters.

    Args:
        twin: False: of the estimator's own loss, with its boundaries held where they are (they
            jump on a set of measure zero). True: of J, if its boundaries were drawn with p.
    """
    own = {id(p) for p in model.estimator.parameters()}
    length = ids_BS.shape[1]
    gradients = torch.zeros(sum(p.numel() for p in model.parameters()), dtype=torch.float64)
    for ids_S in ids_BS:
        proposal = _forward(model, batch_of(ids_S, torch.ones(1, length) > 0), rate)[1]
        a_MS = all_sequences(length) if twin else proposal.boundary_BS
        prob_S = proposal.prob_BS[0]

        @torch.no_grad()
        def value(shift_S, a_MS=a_MS, prob_S=prob_S, ids_S=ids_S):
            prob_MS = (prob_S + shift_S).expand(len(a_MS), -1)
            batch = batch_of(ids_S, a_MS)
            outcome, given = _forward(model, batch, rate, impose=(a_MS, prob_MS))
            nats_M = -outcome.logp_BS.sum(1)
            return (log_probability(given).exp() @ nats_M if twin else nats_M.sum()) / length

        slope_S = torch.zeros(length, dtype=torch.float64)
        for i in proposal.free_BS[0].nonzero().flatten().tolist():
            shift_S = torch.zeros(length, dtype=torch.float64)
            shift_S[i] = step
            slope_S[i] = (value(shift_S) - value(-shift_S)) / (2 * step)
        parameters = list(model.parameters())
        found = torch.autograd.grad(prob_S @ slope_S, parameters, allow_unused=True)
        found = [g if id(p) in own else None for p, g in zip(parameters, found, strict=True)]
        gradients += flat(parameters, found) / len(ids_BS)
    return gradients


class PerRow(TorchFunctionMode):
    """Lets weights with a leading axis of rows stand in for shared ones in the U-Net's layers.

    A matrix is (M, out, in), a vector (M, 1, n). What isn't known here fails or is caught by the
    caller, who compares with ordinary gradients.
    """

    def __init__(self, tensors: list[torch.Tensor]):
        super().__init__()
        self.ours = {id(tensor) for tensor in tensors}

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is F.linear and args[1].dim() == 3:
            bias = args[2] if len(args) > 2 else kwargs.get("bias")
            out_MSO = args[0] @ args[1].mT
            return out_MSO if bias is None else out_MSO + bias
        if func is F.embedding and args[1].dim() == 3:
            return args[1][torch.arange(len(args[0]))[:, None], args[0]]
        if func is F.rms_norm and kwargs["weight"].dim() == 3:
            scale_MS1 = torch.rsqrt(args[0].square().mean(-1, keepdim=True) + kwargs["eps"])
            return args[0] * scale_MS1 * kwargs["weight"]
        if func is torch.Tensor.__getitem__ and id(args[0]) in self.ours:
            return func(args[0], (slice(None), args[1]))
        return func(*args, **kwargs)


@contextlib.contextmanager
def own_weights(model: UNet, rows: int) -> Iterator[list[torch.Tensor]]:
    """The U-Net with a copy of every weight for each of `rows` rows, for the time of a `with`."""
    copies = {}
    for name, parameter in model.named_parameters():
        wide = parameter.detach()[None] if parameter.dim() > 1 else parameter.detach()[None, None]
        copies[name] = wide.expand(rows, *wide.shape[1:]).clone().requires_grad_()
    values = list(copies.values())
    with torch.nn.utils.stateless._reparametrize_module(model, copies), PerRow(values):
        yield values


@dataclass
class Sequences:
    """All boundary sequences of one row.

    Attributes:
        outcome: of the M sequences as a batch, without gradient.
        pi_M: the probabilities that they are drawn with.
        loss_MP: gradient of the loss that the estimator makes of each sequence as a batch of one
            row: nats a position, and its own terms, if it has any for one draw alone.
        path_MP: its part that comes through the network alone, without the estimator's terms.
        logit_MSP: the logits' gradients, where asked for.
    """

    outcome: Outcome
    pi_M: torch.Tensor
    loss_MP: torch.Tensor
    path_MP: torch.Tensor
    logit_MSP: torch.Tensor | None


def per_sequence_gradients(
    model: UNet,
    ids_S: torch.Tensor,
    rate: float,
    u_MS: torch.Tensor | None = None,
    logits: bool = False,
    progress: float = 1.0,
) -> Sequences:
    """Gradients of all sequences of a row on every parameter, in the order of parameters().

    The M sequences go as one batch; an estimator whose terms are means over valid positions, each
    row's from that row alone, gives each row 1 / M of what it gives it by itself. Whether that
    holds is the caller's to check (moments.is_separate).
    """
    a_MS = all_sequences(len(ids_S))
    batch, rows = batch_of(ids_S, a_MS, u_MS).at(progress), len(a_MS)
    with own_weights(model, rows) as copies:
        outcome = outcome_of(model, batch, rate, a_MS)
        own = torch.zeros((), dtype=torch.float64)
        if model.estimator.samples == 1:  # else there is no loss of one draw alone
            terms = model.estimator.losses(outcome).values()
            own = sum((t.weight * t.value for t in terms), own)
        path = -outcome.logp_BS.sum() / len(ids_S)

        def gradient_of(value):
            if not value.requires_grad:
                count = sum(c.numel() for c in copies) // rows
                return torch.zeros(rows, count, dtype=torch.float64)
            found = torch.autograd.grad(value, copies, retain_graph=True, allow_unused=True)
            return flat(copies, found, rows)

        path_MP = gradient_of(path)
        loss_MP = path_MP + rows * gradient_of(own)
        logit_MSP = None
        if logits:
            logit_SM = (outcome.proposal.logit_BS * outcome.proposal.free_BS).T
            logit_MSP = torch.stack([gradient_of(logit_M.sum()) for logit_M in logit_SM], 1)
    outcome = replace(
        outcome,
        logp_BS=outcome.logp_BS.detach(),
        logp_early_BS=outcome.logp_early_BS.detach(),
        proposal=without_gradient(outcome.proposal),
    )
    return Sequences(
        outcome,
        log_probability(draw_probabilities(outcome.proposal)).exp(),
        loss_MP,
        path_MP,
        logit_MSP,
    )
