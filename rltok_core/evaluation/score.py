"""One pass of a model over windows of held-out documents: what it said of every byte.

A window's random numbers depend on its document's bytes and its place in them alone
(fidelity ledger 7), so a score doesn't depend on batch size, order or padding.

Shapes: B rows, S positions (bos first); n bytes of one window.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from rltok_core.data.batches import Windows
from rltok_core.model.unet import UNet, target_logp


@dataclass(frozen=True)
class WindowScore:
    """A window's bytes are document[start : start + n]; arrays hold one value a byte.

    Attributes:
        document, start: index in the split, first byte in the document.
        nats, nats_early: float32, minus the log-probability of the byte.
        boundary: bool, a boundary on the byte; the last one is forced.
        prob: float32, the boundary's probability (of a rule: 0 or 1).
    """

    document: int
    start: int
    nats: np.ndarray
    nats_early: np.ndarray
    boundary: np.ndarray
    prob: np.ndarray

    @property
    def slice(self) -> slice:
        return slice(self.start, self.start + len(self.nats))


def spread(n_windows: int, at_most: int) -> list[int]:
    """At most that many window indices, evenly spread: many documents rather than all of a few.

    Depends on the two counts alone, so every run on the same data scores the same bytes.
    """
    if n_windows <= at_most:
        return list(range(n_windows))
    return [i * n_windows // at_most for i in range(at_most)]


def score_windows(
    model: UNet,
    windows: Windows,
    indices: list[int],
    stream_seed: int,
    target_rate: float,
    batch_size: int,
    device: str = "cpu",
    constant: float | None = None,
    mid: Literal["use", "stale", "zero"] = "use",
    streams: Windows | None = None,
    check: Callable[[], None] = lambda: None,
) -> Iterator[WindowScore]:
    """Score windows in the order of `indices`, in float32.

    Args:
        stream_seed: of the random streams (Windows.evaluation_key).
        constant: replaces every random number (0.5 makes sampling a threshold).
        mid: as in UNet.forward.
        streams: other windows of as many bytes each, whose random streams are used.
        check: called before each batch; raises to stop (a signal has come).
    """
    for first in range(0, len(indices), batch_size):
        check()
        chunk = indices[first : first + batch_size]
        keys = [(streams or windows).evaluation_key(index, stream_seed) for index in chunk]
        batch = windows.batch(chunk, keys, device=device, constant=constant)
        # not inference_mode: masks that the model keeps from here must work in training, later
        with torch.no_grad():
            prediction = model(batch, target_rate, mid=mid)
            logp_BS, logp_early_BS = target_logp(prediction, batch)
        proposal = prediction.proposal
        columns = [-logp_BS, -logp_early_BS, proposal.boundary_BS, proposal.prob_BS.float()]
        nats_BS, early_BS, boundary_BS, prob_BS = (column.cpu().numpy() for column in columns)
        sizes_B = (batch.length_B - 1).tolist()
        for row, ((document, start), n) in enumerate(zip(batch.documents, sizes_B, strict=True)):
            # position j predicts byte j; the boundary on byte j is at position j + 1
            yield WindowScore(
                document=document,
                start=start,
                nats=nats_BS[row, :n],
                nats_early=early_BS[row, :n],
                boundary=boundary_BS[row, 1 : n + 1],
                prob=prob_BS[row, 1 : n + 1],
            )
