"""The loss of a batch (paper.md 5), a pure function of U-Net, batch and configuration.

L = w_auto L_auto + lam_early L_early + the estimator's own terms, where w_auto is 1 - lam_early,
or 1 as the paper writes it (ledger 2).

Shapes: B rows, S positions.
"""

from dataclasses import dataclass

import torch

from rltok_core.boundaries.contract import LossTerm, Outcome
from rltok_core.config.schema import TrainingConfig
from rltok_core.data.batch import Batch
from rltok_core.data.vocabulary import N_SPECIAL, WHITESPACE
from rltok_core.model.unet import Prediction, UNet, target_logp


@dataclass
class Objective:
    """What one forward pass says.

    Attributes:
        loss: scalar with gradient; means over the batch's scored bytes (L_auto, L_early) or as
            each term's own definition has it.
        terms: by name, detached values of every part of the loss, weights not multiplied in.
        nats, nats_early: float64 sums over the batch's scored bytes, detached; means over draws
            where the estimator asks for several.
        prediction: what the U-Net returned.
    """

    loss: torch.Tensor
    terms: dict[str, torch.Tensor]
    nats: torch.Tensor
    nats_early: torch.Tensor
    prediction: Prediction


def objective(model: UNet, batch: Batch, config: TrainingConfig, target_rate: float) -> Objective:
    """Run the U-Net on `batch` and sum up its loss.

    An estimator that asks for several draws of the boundaries (its `samples`) gets them, and every
    mean over bytes is one over draws too.

    Args:
        target_rate: the boundary rate asked for at this step.
    """
    prediction = model(batch, target_rate, samples=model.estimator.samples)
    batch = prediction.batch
    logp_BS, logp_early_BS = target_logp(prediction, batch)
    # rows of bos alone have nothing to predict: a mean over no bytes is 0, not 0 / 0
    bytes_ = (batch.length_B - 1).sum().clamp(min=1)
    auto, early = -logp_BS.sum() / bytes_, -logp_early_BS.sum() / bytes_
    terms = {
        "auto": LossTerm(1.0 if config.paper_loss_weights else 1.0 - config.lam_early, auto),
        "early": LossTerm(config.lam_early, early),
        **model.estimator.losses(
            Outcome(batch, prediction.proposal, logp_BS, logp_early_BS, target_rate)
        ),
    }
    loss = sum(term.weight * term.value for term in terms.values())
    return Objective(
        loss=loss,
        terms={name: term.value.detach() for name, term in terms.items()},
        nats=-logp_BS.detach().double().sum() / batch.samples,
        nats_early=-logp_early_BS.detach().double().sum() / batch.samples,
        prediction=prediction,
    )


def boundary_counts(batch: Batch, boundary_BS: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(boundaries, positions) of a batch, forced ends included in both; int64 scalars."""
    return (boundary_BS & batch.valid_BS).sum(), batch.length_B.sum()


def whitespace_counts(batch: Batch, boundary_BS: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(whitespace bytes with a boundary on them or just after, whitespace bytes); int64 scalars.

    Bytes for which either place is the row's forced end are left out, as in the evaluation
    (evaluation.segmentation.WhitespaceShare).
    """
    space = torch.tensor(list(WHITESPACE), device=batch.ids_BS.device) + N_SPECIAL
    index_S = torch.arange(batch.ids_BS.shape[1], device=batch.ids_BS.device)
    counts_BS = index_S[None, :] < (batch.length_B - 2)[:, None]
    space_BS = torch.isin(batch.ids_BS, space) & counts_BS
    near_BS = boundary_BS.clone()
    near_BS[:, :-1] |= boundary_BS[:, 1:]
    return (space_BS & near_BS).sum(), space_BS.sum()
