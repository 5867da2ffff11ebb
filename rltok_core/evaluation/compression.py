"""Lossless coding of a file by a trained model: what bits per byte promise, redeemed.

Byte by byte, an arithmetic coder is driven by the model's next-byte probabilities. The file is cut
into windows as evaluation cuts a document, and boundaries are drawn from the very stream that
evaluation uses. That stream's key is made of the document's sha256, which a decoder can't know:
the header holds it (and it proves the decoded bytes).

The format: magic, 4 bytes that name model and stream, the file's length (7 bits a byte, lowest
first), its sha256, then the code. Windows are coded GROUP at a time, position by position, so that
a step of the network serves them all; where boundaries come from the text before (BPE, entropies)
one at a time, as a window's first depend on the last window's end. Coder and decoder run the same
steps on the same shapes: the same machine, threads and versions give the same floats, and the
sha256 tells if they didn't.

Shapes: B rows (windows), S positions.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from rltok_core.boundaries.contract import HintReader
from rltok_core.data.batch import Batch
from rltok_core.data.batches import evaluation_key
from rltok_core.data.stream import RandomStream
from rltok_core.data.vocabulary import BOS, N_SPECIAL, PAD
from rltok_core.errors import UserError
from rltok_core.evaluation.bits import LN2
from rltok_core.evaluation.coder import Decoder, Encoder, cumulative_counts
from rltok_core.evaluation.subject import Subject
from rltok_core.evaluation.text import text_scores
from rltok_core.model.incremental import open_decoder

MAGIC = b"RLT1"
GROUP = 64  # windows coded together: part of the format
HINT_BYTES = 1 << 16  # of the past that hints are read from


@dataclass(frozen=True)
class Header:
    """What the decoder is told: see the module's docstring."""

    tag: bytes
    length: int
    digest: bytes

    def pack(self) -> bytes:
        rest, size = self.length, b""
        while rest >= 128:
            size, rest = size + bytes([rest % 128 + 128]), rest // 128
        return MAGIC + self.tag + size + bytes([rest]) + self.digest

    @classmethod
    def unpack(cls, packed: bytes, name: str) -> tuple["Header", bytes]:
        """The header and the code after it. Raises UserError: not such a file."""
        if packed[:4] != MAGIC:
            raise UserError(f"{name}: not a file that `rltok compress` made")
        length, at = 0, 8
        while at < len(packed) and packed[at] >= 128:
            length, at = length + (packed[at] - 128 << 7 * (at - 8)), at + 1
        if len(packed) < at + 33:
            raise UserError(f"{name}: damaged: it ends within its header")
        length += packed[at] << 7 * (at - 8)
        return cls(packed[4:8], length, packed[at + 1 : at + 33]), packed[at + 33 :]


def refuse_look_ahead(subject: Subject) -> None:
    """Raise UserError if no decoder could follow: boundaries depend on bytes not yet decoded."""
    if not type(subject.model.estimator).causal:
        raise UserError(
            f"{subject.id}: {subject.label} looks ahead: its boundaries depend on bytes that a "
            "decoder doesn't have yet, so nothing can be decoded and its bits per byte are no "
            "code length (bpe_causal is the variant without the look-ahead)"
        )


def model_tag(subject: Subject) -> bytes:
    """4 bytes that tell models (weights, configuration) and streams apart."""
    digest = hashlib.sha256(f"{subject.run.hash} {subject.run.evaluation.stream_seed}".encode())
    for name, value in sorted(subject.model.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.digest()[:4]


def _walk(
    subject: Subject,
    header: Header,
    hints: HintReader | None,
    symbol: Callable[[int, np.ndarray], int],
    check: Callable[[], None],
) -> bytes:
    """Visit every byte in coding order.

    Args:
        symbol: (place in the file, its row of cumulative_counts) -> the byte there.
        check: called before every position; raises to stop.

    Returns:
        The file.
    """
    run, device = subject.run, subject.run.runtime.device
    model, step = subject.model.to(device), run.training.seq_len - 1
    file = np.zeros(header.length, np.uint8)
    starts = range(0, header.length, step)
    group = GROUP if hints is None else 1
    for first in range(0, len(starts), group):
        start_B = np.array(starts[first : first + group])
        size_B = np.minimum(header.length - start_B, step)
        width, digest = int(size_B.max()) + 1, header.digest.hex()
        keys = [evaluation_key(run.evaluation.stream_seed, digest, int(s)) for s in start_B]
        batch = Batch(
            ids_BS=torch.full((len(start_B), width), PAD, device=device),
            length_B=torch.from_numpy(size_B + 1).to(device),
            stream=RandomStream(keys, device),
            hint_BS=None
            if hints is None
            else torch.zeros(len(start_B), width, dtype=torch.bool, device=device),
        )
        decoder = open_decoder(model, batch, run.training.target_rate)
        ids_B, hint_B = np.full(len(start_B), BOS), None
        for i in range(width - 1):
            check()
            logits_BC = decoder.step(torch.from_numpy(ids_B).to(device), hint_B)
            below = cumulative_counts(logits_BC.double().cpu().numpy())
            ids_B = np.full(len(start_B), PAD)
            for row in np.flatnonzero(size_B > i).tolist():
                place = int(start_B[row]) + i
                file[place] = symbol(place, below[row])
                ids_B[row] = int(file[place]) + N_SPECIAL
            if hints is not None:
                past = file[max(0, place + 1 - HINT_BYTES) : place + 1].tobytes()
                hint_B = torch.tensor([hints.last(past)], device=device)
    return file.tobytes()


def compress(
    subject: Subject,
    hints: HintReader | None,
    file: bytes,
    check: Callable[[], None] = lambda: None,
) -> tuple[bytes, bytes]:
    """Code a file. Returns header and code.

    Raises:
        UserError: the method looks ahead.
    """
    refuse_look_ahead(subject)
    header = Header(model_tag(subject), len(file), hashlib.sha256(file).digest())
    encoder = Encoder()

    def symbol(place: int, below: np.ndarray) -> int:
        encoder.encode(below, file[place])
        return file[place]

    _walk(subject, header, hints, symbol, check)
    return header.pack(), encoder.finish() if file else b""


def decompress(
    subject: Subject,
    hints: HintReader | None,
    packed: bytes,
    name: str = "the file",
    check: Callable[[], None] = lambda: None,
) -> bytes:
    """The file that was coded, proven by its sha256.

    Raises:
        UserError: not such a file, another model's, damaged, or made where floats differ.
    """
    refuse_look_ahead(subject)
    header, code = Header.unpack(packed, name)
    if header.tag != model_tag(subject):
        raise UserError(f"{name}: made by another model, or by another stream seed, than this run")
    try:
        np.empty(header.length, np.uint8)  # costs nothing before it is written to
    except (MemoryError, ValueError):
        raise UserError(
            f"{name}: damaged: its header says {header.length} bytes, more than memory can hold"
        ) from None
    decoder = Decoder(code)
    file = _walk(subject, header, hints, lambda place, below: decoder.decode(below), check)
    if hashlib.sha256(file).digest() != header.digest:
        raise UserError(
            f"{name}: the decoded bytes are not the ones that were coded: the file is damaged, or "
            "it was made with another machine, thread count or PyTorch, whose floats differ"
        )
    return file


def evaluation_bits(subject: Subject, hints: HintReader | None, file: bytes) -> float:
    """The bits that evaluation gives these bytes as one document: by the full forward pass."""
    scores = text_scores(subject, [file], hints)
    return float(sum(score.nats.astype(np.float64).sum() for score in scores)) / LN2
