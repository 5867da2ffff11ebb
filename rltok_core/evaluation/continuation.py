"""What a model says of a text that follows another, in bytes: log-likelihoods and greedy text.

The seam between context and continuation is between bytes, so nothing has to be moved or counted
twice: log p(continuation | context) is the sum over exactly the continuation's bytes (K23). Random
streams depend on the context alone: continuations of one context are compared under the same draws,
and generation follows the boundaries by which it is scored.

Shapes: B rows, S positions, C = 256 bytes.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from rltok_core.boundaries.contract import HintReader
from rltok_core.data.batch import Batch
from rltok_core.data.batches import evaluation_key
from rltok_core.data.stream import RandomStream
from rltok_core.data.vocabulary import BOS, N_SPECIAL, PAD
from rltok_core.errors import UserError
from rltok_core.evaluation.compression import refuse_look_ahead
from rltok_core.evaluation.score import score_windows
from rltok_core.evaluation.subject import Subject
from rltok_core.evaluation.text import text_windows
from rltok_core.model.incremental import open_decoder


@dataclass(frozen=True)
class Likelihood:
    """Of one continuation.

    Attributes:
        nats: log p(continuation | context), summed in float64.
        greedy: whether each of its bytes is the model's most likely one.
        n_bytes: of the continuation.
        cut: bytes of the context that didn't fit in front of it.
    """

    nats: float
    greedy: bool
    n_bytes: int
    cut: int


@dataclass(frozen=True)
class _Row:
    """A window: `scored` bytes at its end count; `item` is the pair that it belongs to."""

    item: int
    text: bytes
    scored: int
    key: int
    hint: np.ndarray | None


class Continuations:
    """Scores and writes continuations with one model.

    Args:
        reader: makes hints for text, where the estimator needs them (open_hints).
        batch_size: rows at a time; results don't depend on it, nor on the order of requests.
    """

    def __init__(self, subject: Subject, reader: HintReader | None, batch_size: int):
        self.subject, self.reader, self.batch_size = subject, reader, batch_size
        self.run, self.device = subject.run, subject.run.runtime.device
        self.model = subject.model.to(self.device)
        self.longest = self.run.training.seq_len - 1  # bytes of a window

    def score(self, pairs: Sequence[tuple[bytes, bytes]]) -> list[Likelihood]:
        """log p(continuation | context) of (context, continuation) pairs, in their order.

        A context that is too long loses bytes at its left; a continuation that doesn't fit into a
        window by itself is scored without context, in windows as evaluation cuts them.

        Raises:
            UserError: a continuation is empty.
        """
        rows, cuts = [], []
        for item, (context, continuation) in enumerate(pairs):
            if not continuation:
                raise UserError(f"request {item}: empty continuation: there is nothing to score")
            found, cut = self._rows(item, context, continuation)
            rows += found
            cuts.append(cut)
        nats, greedy = [0.0] * len(pairs), [True] * len(pairs)
        for row, logp, best in self._scored(rows):
            nats[row.item] += float(logp.sum())
            greedy[row.item] &= best
        return [
            Likelihood(nats[i], greedy[i], len(continuation), cuts[i])
            for i, (_, continuation) in enumerate(pairs)
        ]

    def _rows(self, item: int, context: bytes, continuation: bytes) -> tuple[list[_Row], int]:
        seed, digest = self.run.evaluation.stream_seed, hashlib.sha256(context).hexdigest()
        whole = context + continuation
        hint = None if self.reader is None else self.reader.whole([whole])
        if len(continuation) <= self.longest:
            begins, cut = [max(0, len(whole) - self.longest)], max(0, len(whole) - self.longest)
        else:
            begins, cut = range(len(context), len(whole), self.longest), len(context)
        rows = []
        for begin in begins:
            text = whole[begin : begin + self.longest]
            key = evaluation_key(seed, digest, begin - cut)
            part = None if hint is None else hint[begin : begin + self.longest]
            rows.append(_Row(item, text, min(len(text), len(continuation)), key, part))
        return rows, cut

    def _scored(self, rows: list[_Row]):
        """(row, float64 log-probabilities of its scored bytes, whether all are the likeliest)."""
        # rows of like length share a batch
        order = sorted(rows, key=lambda row: len(row.text))
        for first in range(0, len(order), self.batch_size):
            chunk = order[first : first + self.batch_size]
            batch = self._batch([row.text for row in chunk], chunk)
            with torch.no_grad():
                logits_BSC = self.model(batch, self.run.training.target_rate).logits_BSC
            logp_BSC = logits_BSC.float().log_softmax(-1)
            target_BS = batch.target_BS
            logp_BS = logp_BSC.gather(-1, target_BS[..., None])[..., 0].double().cpu().numpy()
            best_BS = (logp_BSC.argmax(-1) == target_BS).cpu().numpy()
            for at, row in enumerate(chunk):
                # position p predicts byte p
                seen = slice(len(row.text) - row.scored, len(row.text))
                yield row, logp_BS[at, seen], bool(best_BS[at, seen].all())

    def _batch(self, texts: list[bytes], rows: list[_Row], room: int = 0) -> Batch:
        """Rows of texts with `room` more positions behind each one's end."""
        length_B = np.array([len(text) + 1 + room for text in texts])
        shape = (len(texts), int(length_B.max()))
        ids_BS, hint_BS = np.full(shape, PAD), np.zeros(shape, bool)
        ids_BS[:, 0] = BOS
        for at, (text, row) in enumerate(zip(texts, rows, strict=True)):
            ids_BS[at, 1 : len(text) + 1] = np.frombuffer(text, np.uint8).astype(int) + N_SPECIAL
            if row.hint is not None:
                hint_BS[at, 1 : len(text) + 1] = row.hint
        return Batch(
            ids_BS=torch.from_numpy(ids_BS).to(self.device),
            length_B=torch.from_numpy(length_B).to(self.device),
            stream=RandomStream([row.key for row in rows], self.device),
            hint_BS=None if self.reader is None else torch.from_numpy(hint_BS).to(self.device),
        )

    def rolling(self, texts: Sequence[bytes]) -> list[float]:
        """log p of whole texts, nats: windows, streams and sums of the evaluation."""
        windows = text_windows(texts, self.run, self.reader)
        nats = [0.0] * len(texts)
        scores = score_windows(
            self.model,
            windows,
            list(range(len(windows))),
            self.run.evaluation.stream_seed,
            self.run.training.target_rate,
            self.batch_size,
            self.device,
        )
        for score in scores:
            nats[score.document] -= float(score.nats.astype(np.float64).sum())
        return nats

    def write(
        self, contexts: Sequence[bytes], until: Sequence[Sequence[bytes]], at_most: int
    ) -> list[bytes]:
        """The likeliest next byte, again and again, by the incremental decoder.

        Args:
            until: of each context, what ends its text; it is left out.
            at_most: bytes; a context too long for a window with them loses bytes at its left.

        Raises:
            UserError: the method looks ahead, or at_most leaves no room.
        """
        refuse_look_ahead(self.subject)
        if not 0 < at_most <= self.longest:
            raise UserError(f"at most {self.longest} bytes can be generated, {at_most} asked for")
        room = self.longest - at_most
        order = sorted(range(len(contexts)), key=lambda i: len(contexts[i]))
        written = [b""] * len(contexts)
        for first in range(0, len(order), self.batch_size):
            chunk = order[first : first + self.batch_size]
            kept = [contexts[i][max(0, len(contexts[i]) - room) :] for i in chunk]
            rows = [self._rows(i, contexts[i], b"\0")[0][0] for i in chunk]
            stops = [until[i] for i in chunk]
            for i, text in zip(chunk, self._greedy(kept, rows, stops, at_most), strict=True):
                written[i] = text
        return written

    def _greedy(
        self, kept: list[bytes], rows: list[_Row], stops: list[Sequence[bytes]], at_most: int
    ) -> list[bytes]:
        rows = [_Row(row.item, b"", 0, row.key, None) for row in rows]
        batch = self._batch(kept, rows, at_most)
        decoder = open_decoder(self.model, batch, self.run.training.target_rate)
        texts = [bytearray(context) for context in kept]
        done, ids_B, hint_B = [False] * len(kept), batch.ids_BS[:, 0], None
        for i in range(batch.ids_BS.shape[1] - 1):
            best_B = decoder.step(ids_B, hint_B).argmax(-1).tolist()
            for at, text in enumerate(texts):
                if not done[at] and i >= len(kept[at]):
                    text.append(best_B[at])
                    new = bytes(text[len(kept[at]) :])
                    done[at] = len(new) == at_most or any(new.endswith(s) for s in stops[at])
            if all(done):
                break
            ended = [i >= len(text) for text in texts]
            last = [PAD if e else t[i] + N_SPECIAL for t, e in zip(texts, ended, strict=True)]
            ids_B = torch.tensor(last, device=self.device)
            if self.reader is not None:
                flags = [
                    not e and self.reader.last(bytes(t[: i + 1]))
                    for t, e in zip(texts, ended, strict=True)
                ]
                hint_B = torch.tensor(flags, device=self.device)
        return [
            _before(bytes(text[len(context) :]), stop)
            for text, context, stop in zip(texts, kept, stops, strict=True)
        ]


def _before(text: bytes, stops: Sequence[bytes]) -> bytes:
    """text up to the first of what ends it."""
    places = [text.find(stop) for stop in stops]
    return text[: min([place for place in places if place >= 0], default=len(text))]
