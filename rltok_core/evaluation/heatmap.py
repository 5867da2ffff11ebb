"""What a heat map shows: a few held-out documents byte by byte, scored as in the evaluation."""

from collections.abc import Callable, Iterable

import numpy as np

from rltok_core.config.schema import EvaluationConfig
from rltok_core.data.batches import Windows
from rltok_core.data.store import ByteStore
from rltok_core.evaluation.bits import LN2
from rltok_core.evaluation.score import WindowScore


def heatmap(
    store: ByteStore,
    windows: Windows,
    settings: EvaluationConfig,
    score: Callable[[Windows, list[int]], Iterable[WindowScore]],
) -> dict:
    """Score the first heatmap_bytes bytes of each document of heatmap_documents.

    A document longer than a window comes in several, each with its own forced ends, as in
    training. An index beyond the split's end is taken modulo the number of documents; "requested"
    keeps the indices that led to a document, which is shown once.

    Args:
        windows: every window of every document.
        score: scores the windows of a list of indices.

    Returns:
        {"documents": [{"document", "requested", "bytes", "prob", "boundary", "bits"}]}.
    """
    requested: dict[int, list[int]] = {}
    for index in settings.heatmap_documents:
        requested.setdefault(index % len(store), []).append(index)
    limit = settings.heatmap_bytes
    shown = []
    for document, asked in requested.items():
        every = windows.of_document(document)
        starts = windows.places(every)[1]
        scores = list(score(windows, [every[i] for i in np.flatnonzero(starts < limit)]))

        def joined(values, scores=scores) -> list:
            parts = [values(part) for part in scores]
            return np.concatenate(parts)[:limit].tolist() if parts else []

        shown.append(
            {
                "document": document,
                "requested": asked,
                "bytes": np.asarray(store[document][:limit]).tolist(),
                "prob": joined(lambda part: part.prob.astype(np.float64)),
                "boundary": joined(lambda part: part.boundary.astype(int)),
                "bits": joined(lambda part: part.nats.astype(np.float64) / LN2),
            }
        )
    return {"documents": shown}
