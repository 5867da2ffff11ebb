"""Any text as evaluation would cut it: windows of documents that are in no data folder."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from rltok_core.boundaries.contract import HintReader
from rltok_core.boundaries.registry import estimator_class
from rltok_core.config.schema import RunConfig
from rltok_core.data.batches import Windows
from rltok_core.data.store import ByteStore
from rltok_core.errors import UserError
from rltok_core.evaluation.score import WindowScore, score_windows
from rltok_core.evaluation.subject import Subject


def open_hints(run: RunConfig, data: Path | None, prepared: Path | None) -> HintReader | None:
    """What tells a run's estimator the boundaries that it must be given; None if it needs none.

    Raises:
        UserError: a folder is missing, or no text but the planted language's has them.
    """
    cls = estimator_class(run.estimator)
    if cls.hint is None:
        return None
    if cls.hint == "truth":
        raise UserError(
            f"{cls.__name__} needs true boundaries, which only the planted corpus has: it can't "
            "read any other text"
        )
    return cls.hint_reader(run.estimator.params, data, prepared)


def text_windows(
    documents: Sequence[bytes], run: RunConfig, hints: HintReader | None, name: str = "text"
) -> Windows:
    """Every window of every document, with the hints that the run's estimator needs."""
    offsets = np.cumsum([0, *map(len, documents)], dtype=np.int64)
    whole = np.frombuffer(b"".join(documents), np.uint8)
    store = ByteStore(Path(name), whole, offsets, None)
    flags = None
    if hints is not None:
        flags = hints.whole(list(documents)).astype(np.uint8)
    return Windows(store, run.training.seq_len, "all", flags)


def text_scores(
    subject: Subject, documents: Sequence[bytes], hints: HintReader | None
) -> Iterator[WindowScore]:
    """The score of every window of every document, with the evaluation's streams and batches."""
    run = subject.run
    windows = text_windows(documents, run, hints)
    return score_windows(
        subject.model.to(run.runtime.device),
        windows,
        list(range(len(windows))),
        run.evaluation.stream_seed,
        run.training.target_rate,
        run.evaluation.batch_size,
        run.runtime.device,
    )
