"""BLT's rule (Pagnoni et al. 2024, arXiv 2412.09871): a boundary where the next byte is uncertain.

Byte i starts a token if H(byte i | the bytes before it) is at or above a threshold: the entropy of
what a small model (entropy_model.py) expects there, known before byte i is read, so causal. The
first byte of a document always starts one. The threshold is set on validation text, to the target
rate. Model, threshold and boundaries are made beforehand (`rltok prepare`); preparation.json says
which rate was asked for and which came out.

BLT's small model is a transformer of 100M weights; ours counts, which takes seconds on a laptop.

Shapes: B rows, S positions, D model width, J bytes, L levels (distinct entropies).
"""

import importlib.metadata
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from rltok_core.boundaries.contract import Estimator, HintReader, Proposal, hinted_proposal
from rltok_core.boundaries.entropy_model import ByteModel
from rltok_core.boundaries.preparation import (
    NEVER,
    Choice,
    prepare_hints,
    rates,
    sample_documents,
)
from rltok_core.data.batch import Batch
from rltok_core.data.store import ByteStore
from rltok_core.errors import UserError

MORE_THAN_ALL = 9.0  # bits: as a threshold it leaves documents' first bytes alone


@dataclass(frozen=True)
class Params:
    """See configs/estimators/entropy.yaml."""

    order: int
    min_count: int
    train_bytes: int
    sequence_bytes: int

    def __post_init__(self):
        if not 1 <= self.order <= 6:
            raise ValueError(f"order must be 1 to 6 bytes, got {self.order}")
        if self.min_count < 1 or self.train_bytes < 1:
            raise ValueError("min_count and train_bytes must be positive")
        if self.sequence_bytes < 0:
            raise ValueError(f"sequence_bytes must not be negative, got {self.sequence_bytes}")


class Entropy(Estimator):
    """A boundary where a small model's next-byte entropy passes a threshold."""

    hint = "prepared"

    def __init__(self, params: dict, d_model: int, target_rate: float, seq_len: int):
        super().__init__(params, d_model, target_rate, seq_len)
        self.params = Params(**params)

    def propose(self, x_BSD: torch.Tensor, batch: Batch, target_rate: float) -> Proposal:
        return hinted_proposal(batch, "entropy")

    @classmethod
    def prepare(cls, data: Path, out: Path, params: dict, target_rate: float) -> None:
        checked = Params(**params)

        def choose(documents: list[bytes], held_out: list[bytes]) -> Choice:
            return choose_threshold(documents, held_out, checked, target_rate)

        prepare_hints(data, out, checked.train_bytes, target_rate, choose)

    @classmethod
    def hint_reader(cls, params: dict, data: Path | None, prepared: Path | None) -> HintReader:
        """Counts the training text again, as prepare() did, and takes its threshold."""
        checked = Params(**params)
        if prepared is None or data is None:
            raise UserError("Entropy needs --prepared DIR and --data DIR to read other text")
        path = prepared / "preparation.json"
        try:
            threshold = json.loads(path.read_text(encoding="utf-8"))["threshold_bits"]
        except (OSError, ValueError, KeyError) as error:
            raise UserError(f"{path}: missing or damaged: {error!r}") from None
        train = sample_documents(ByteStore.open(data / "train"), checked.train_bytes)
        model = ByteModel.fit(train, checked.order, checked.min_count)
        decide = decision(model, model.entropies(), threshold)

        def last(prefix: bytes) -> bool:
            # a context is no longer than the order
            return len(prefix) == 1 or bool(decide([prefix[-checked.order - 1 :]])[-1])

        return HintReader(decide, last)


def decision(
    model: ByteModel, entropy_N: np.ndarray, threshold: float
) -> Callable[[list[bytes]], np.ndarray]:
    """documents -> bool, one a byte: at or above the threshold, or the first of its document."""

    def decide(documents: list[bytes]) -> np.ndarray:
        return (entropy_N[model.nodes(documents)] >= threshold) | _starts(documents)

    return decide


def choose_threshold(
    documents: list[bytes], held_out: list[bytes], params: Params, target_rate: float
) -> Choice:
    """Fit the model on `documents`, and the threshold that meets the rate best on `held_out`."""
    model = ByteModel.fit(documents, params.order, params.min_count)
    entropy_N = model.entropies()
    entropy_J = entropy_N[model.nodes(held_out)]
    level_L, rank_J = np.unique(entropy_J, return_inverse=True)
    rank_J = np.where(_starts(held_out), NEVER, rank_J).astype(np.int32)
    lengths = [len(document) for document in held_out]
    rate_L = rates(rank_J, len(level_L), lengths, params.sequence_bytes)
    best = int(np.abs(rate_L - target_rate).argmin())
    threshold = float(np.append(level_L, MORE_THAN_ALL)[best])
    summary = {
        "kind": "entropy",
        "causal": True,
        "params": asdict(params),
        "threshold_bits": threshold,
        "mean_entropy_bits": float(entropy_J.mean()),
        "contexts": len(entropy_N),
        "tool_versions": {"numpy": importlib.metadata.version("numpy")},
    }
    return Choice(decision(model, entropy_N, threshold), float(rate_L[best]), summary)


def _starts(documents: list[bytes]) -> np.ndarray:
    """bool_J: the first byte of each document."""
    lengths = np.array([len(document) for document in documents], np.int64)
    starts_J = np.zeros(lengths.sum(), bool)
    starts_J[(np.cumsum(lengths) - lengths)[lengths > 0]] = True
    return starts_J
