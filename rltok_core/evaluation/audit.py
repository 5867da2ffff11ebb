"""The leak audit: does any prediction change when a byte that comes after it does?

Each byte of a window is replaced in turn (a sample of them in a long one), the random stream and
the length stay, and all predictions of the bytes up to and including it are compared with the
original's: position i predicts byte i and has seen the bytes before it alone. In float64, so that
what is left is the method's and not rounding's. Hints (BPE, entropies) are made anew for the
changed text, or held where only the corpus knows them (the planted truth).

Shapes: B rows, S positions, C = 256 bytes; row 0 is the original.
"""

import copy
from dataclasses import dataclass

import numpy as np
import torch

from rltok_core.boundaries.contract import HintReader
from rltok_core.data.batch import Batch
from rltok_core.data.batches import Windows
from rltok_core.data.stream import RandomStream, stream_key
from rltok_core.data.vocabulary import BOS, N_SPECIAL
from rltok_core.evaluation.bits import LEAK
from rltok_core.evaluation.score import spread
from rltok_core.model.unet import UNet

WINDOWS, BYTES, POSITIONS = 4, 512, 64  # audited: windows, bytes of each, bytes of those replaced
ROWS = 16  # changed rows at a time; the original goes with each


@dataclass
class Audit:
    """What has been found so far: see the values of as_dict."""

    max_difference: float = 0.0
    moved_boundaries: int = 0
    windows: int = 0
    positions: int = 0
    predictions: int = 0

    def as_dict(self, hints: str | None) -> dict:
        """For evaluation.json.

        max_difference: nats, the largest change of any earlier byte's log-probability;
        moved_boundaries: earlier boundaries that came or went; positions: bytes replaced;
        predictions: earlier ones compared; hints: "recomputed", "held" or None (needs none).
        """
        found = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return found | {"hints": hints, "leaks": self.max_difference > LEAK}


def audit(
    model: UNet,
    windows: Windows,
    reader: HintReader | None,
    target_rate: float,
    stream_seed: int,
    device: str,
) -> dict:
    """Audit a few windows of a split.

    Args:
        windows: with hints, where the estimator needs them.
        reader: makes hints for changed text; None: those of the window are held.
    """
    model = copy.deepcopy(model).to(device).double().eval()
    found = Audit()
    for index in spread(len(windows), WINDOWS):
        original = windows.batch([index], [windows.evaluation_key(index, stream_seed)])
        text = (original.ids_BS[0, 1:] - N_SPECIAL).numpy().astype(np.uint8)[:BYTES]
        held = None if original.hint_BS is None else original.hint_BS[0, 1 : len(text) + 1].numpy()
        changed, places = _changes(text, stream_key(stream_seed, "audit", index))
        for first in range(0, len(places), ROWS):
            rows = np.concatenate([text[None], changed[first : first + ROWS]])
            batch = _batch(rows, original.stream.keys_B[0], reader, held, device)
            _compare(found, model, batch, places[first : first + ROWS], target_rate)
        found.windows += 1
    kind = None
    if windows.hints is not None:
        kind = "held" if reader is None else "recomputed"
    return found.as_dict(kind)


def _changes(text: np.ndarray, key: int) -> tuple[np.ndarray, np.ndarray]:
    """(rows of text with one other byte each, its place): bytes that occur in the text, if any."""
    rng = np.random.Generator(np.random.Philox(key=key))
    places = np.sort(rng.permutation(len(text))[:POSITIONS])
    rows = np.repeat(text[None], len(places), 0)
    for row, place in zip(rows, places, strict=True):
        others = np.setdiff1d(text, text[place])
        row[place] = rng.choice(others) if len(others) else text[place] ^ 1
    return rows, places


def _batch(
    rows: np.ndarray, key: int, reader: HintReader | None, held: np.ndarray | None, device: str
) -> Batch:
    shape = (len(rows), rows.shape[1] + 1)
    ids_BS = np.full(shape, BOS, np.int64)
    ids_BS[:, 1:] = rows
    ids_BS[:, 1:] += N_SPECIAL
    hint_BS = None
    if held is not None:
        flags = held if reader is None else reader.whole([r.tobytes() for r in rows])
        hint_BS = np.zeros(shape, bool)
        hint_BS[:, 1:] = np.broadcast_to(flags.reshape(-1, rows.shape[1]), rows.shape)
    return Batch(
        ids_BS=torch.from_numpy(ids_BS).to(device),
        length_B=torch.full((len(rows),), shape[1], device=device),
        stream=RandomStream([key] * len(rows), device),
        hint_BS=None if hint_BS is None else torch.from_numpy(hint_BS).to(device),
    )


def _compare(
    found: Audit, model: UNet, batch: Batch, places: np.ndarray, target_rate: float
) -> None:
    with torch.no_grad():
        prediction = model(batch, target_rate)
    logp_BSC = prediction.logits_BSC.log_softmax(-1)
    boundary_BS = prediction.proposal.boundary_BS
    for row, place in enumerate(places.tolist(), 1):
        seen = slice(0, place + 1)
        gap = (logp_BSC[row, seen] - logp_BSC[0, seen]).abs().max()
        moved = boundary_BS[row, seen] != boundary_BS[0, seen]
        found.max_difference = max(found.max_difference, float(gap))
        found.moved_boundaries += int(moved.sum())
        found.positions += 1
        found.predictions += place + 1
