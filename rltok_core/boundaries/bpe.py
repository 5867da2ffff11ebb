"""BPE guidance (paper.md 6): a boundary at the first byte of every BPE token.

NOT causal (ledger 8): that a byte is the first of a token is known only once later bytes of its
word are seen. `bpe_causal` is the variant that may be used to predict.

Shapes: B rows, S positions, D model width.
"""

from pathlib import Path

import torch

from rltok_core.boundaries.bpe_merges import LastToken, boundary_ranks
from rltok_core.boundaries.bpe_preparation import Params, prepare, read_merges
from rltok_core.boundaries.contract import Estimator, HintReader, Proposal, hinted_proposal
from rltok_core.data.batch import Batch


class Bpe(Estimator):
    """Boundaries of a byte-level BPE tokenizer, prepared beforehand (`rltok prepare`)."""

    causal = False
    hint = "prepared"

    def __init__(self, params: dict, d_model: int, target_rate: float, seq_len: int):
        super().__init__(params, d_model, target_rate, seq_len)
        self.params = Params(**params)

    def propose(self, x_BSD: torch.Tensor, batch: Batch, target_rate: float) -> Proposal:
        return hinted_proposal(batch, type(self).__name__)

    @classmethod
    def prepare(cls, data: Path, out: Path, params: dict, target_rate: float) -> None:
        prepare(data, out, params, target_rate, cls.causal)

    @classmethod
    def hint_reader(cls, params: dict, data: Path | None, prepared: Path | None) -> HintReader:
        merges_N2 = read_merges(cls.__name__, prepared)

        def whole(documents):
            return boundary_ranks(merges_N2, documents, cls.causal) >= len(merges_N2)

        return HintReader(whole, LastToken(merges_N2).starts if cls.causal else None)
