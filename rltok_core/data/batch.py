"""What the model is given: padded rows of byte ids with their lengths and explicit randomness.

Shapes: B rows, S positions. Position 0 is bos, position j + 1 is byte j of the window; the
prediction at position i is of position i + 1. Rows are never packed (one document a row).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from rltok_core.data.stream import RandomStream, moved
from rltok_core.data.vocabulary import N_SPECIAL


@dataclass(frozen=True)
class Batch:
    """A batch of rows.

    Attributes:
        ids_BS: int64 token ids; PAD after a row's end.
        length_B: int64, valid positions of a row, bos included (>= 1).
        stream: the random numbers of these rows.
        hint_BS: bool, boundaries known beforehand (BPE, the planted truth), at positions;
            None where the estimator needs none.
        documents: (document index, first byte) of each row, for messages and results.
        samples: draws of the boundaries that the rows are; a block of all rows for each.
        progress: share of the training steps that are behind, in [0, 1]; 1 in evaluation.
    """

    ids_BS: torch.Tensor
    length_B: torch.Tensor
    stream: RandomStream
    hint_BS: torch.Tensor | None = None
    documents: tuple[tuple[int, int], ...] = ()
    samples: int = 1
    progress: float = 1.0

    @property
    def valid_BS(self) -> torch.Tensor:
        """bool: positions that hold bos or a byte; from lengths, never from ids."""
        index_S = torch.arange(self.ids_BS.shape[1], device=self.ids_BS.device)
        return index_S[None, :] < self.length_B[:, None]

    @property
    def target_BS(self) -> torch.Tensor:
        """int64 in 0..255: the byte that each position predicts; 0 where there is none."""
        target_BS = torch.zeros_like(self.ids_BS)
        target_BS[:, :-1] = (self.ids_BS[:, 1:] - N_SPECIAL).clamp(min=0)
        return target_BS

    @property
    def scored_BS(self) -> torch.Tensor:
        """bool: positions whose next position is a byte (length - 1 of a row)."""
        index_S = torch.arange(self.ids_BS.shape[1], device=self.ids_BS.device)
        return index_S[None, :] < (self.length_B - 1)[:, None]

    def with_stream(self, stream: RandomStream) -> "Batch":
        return replace(self, stream=stream)

    def pinned(self) -> "Batch":
        """In page-locked host memory, from where a GPU copies without the host's waiting."""
        return self._moved(torch.Tensor.pin_memory, "cpu")

    def to(self, device) -> "Batch":
        """On `device`."""
        return self._moved(lambda tensor: moved(tensor, device), device)

    def _moved(self, move: Callable[[torch.Tensor], torch.Tensor], device) -> "Batch":
        return replace(
            self,
            ids_BS=move(self.ids_BS),
            length_B=move(self.length_B),
            stream=self.stream.on(device),
            hint_BS=None if self.hint_BS is None else move(self.hint_BS),
        )

    def at(self, progress: float) -> "Batch":
        return replace(self, progress=progress)

    def repeated(self, samples: int, antithetic: bool = False) -> "Batch":
        """These rows `samples` times, a block for each draw of the boundaries."""
        if samples == 1:
            return self
        hint_BS = self.hint_BS
        return replace(
            self,
            ids_BS=self.ids_BS.repeat(samples, 1),
            length_B=self.length_B.repeat(samples),
            stream=self.stream.repeated(samples, antithetic),
            hint_BS=None if hint_BS is None else hint_BS.repeat(samples, 1),
            documents=self.documents * samples,
            samples=samples,
        )
