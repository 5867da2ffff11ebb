"""Bits per byte on the validation split in the middle of training: what tuning may look at.

Windows are scored as in the evaluation: float32, random streams that depend on the document
alone, sums in float64.
"""

from rltok_core.data.batches import Windows
from rltok_core.evaluation.bits import CorpusScore
from rltok_core.evaluation.score import score_windows, spread
from rltok_core.evaluation.segmentation import WhitespaceShare
from rltok_core.training.trainer import Trainer


def validate(trainer: Trainer, windows: Windows, target_rate: float) -> dict[str, float | None]:
    """bpb, bpb_early, boundary_rate, whitespace_share of up to validation_sequences windows.

    Ranks take turns at batches; every rank gets every window's score, and adds them up in the order
    of windows, so the result is the one of a single process with batches of that size, bit for bit.

    Args:
        trainer: the model, and whose ranks it has.
        windows: of the validation split.
        target_rate: what training asks for now; differs from the run's own in a curriculum.
    """
    run, model, ranks = trainer.run, trainer.model, trainer.ranks
    size = run.runtime.micro_batch or max(map(len, trainer.cuts))
    indices = spread(len(windows), run.training.validation_sequences)
    chunks = [indices[first : first + size] for first in range(0, len(indices), size)]
    mine = sum(chunks[ranks.rank :: ranks.size], [])
    was_training = model.training
    model.eval()
    scores = list(
        score_windows(
            model, windows, mine, run.evaluation.stream_seed, target_rate, size, trainer.device
        )
    )
    model.train(was_training)
    every = {(one.document, one.start): one for part in ranks.gather(scores) for one in part}
    corpus, spaces = CorpusScore(), WhitespaceShare()
    boundaries = positions = 0
    document_B, start_B, _ = windows.places(indices)
    for place in zip(document_B.tolist(), start_B.tolist(), strict=True):
        score = every[place]
        marked = 1 + int(score.boundary.sum())  # bos is a forced boundary
        boundaries, positions = boundaries + marked, positions + 1 + len(score.boundary)
        corpus.document(score.document).add(score.nats, score.nats_early, marked)
        spaces.add(windows.store[score.document][score.slice], score.boundary)
    return {
        "bpb": corpus.bpb,
        "bpb_early": corpus.bpb_early,
        "boundary_rate": boundaries / positions,
        "whitespace_share": spaces.share,
    }
