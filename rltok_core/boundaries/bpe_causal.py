"""BPE guidance without looking ahead (ledger 8): each prefix is tokenized by itself.

A boundary at byte i if, in the tokenization of the bytes up to i, the last token starts at i.
"""

from rltok_core.boundaries.bpe import Bpe


class BpeCausal(Bpe):
    """BPE boundaries as they are known when each byte has just been read."""

    causal = True
