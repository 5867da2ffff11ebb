"""Bits per byte on the validation split in the middle of training: what tuning may look at.

Windows are scored as in the evaluation: float32, random streams that depend on the document
alone, sums in float64.
"""

from rltok_core.config.schema import RunConfig
from rltok_core.data.batches import Windows
from rltok_core.evaluation.bits import CorpusScore
from rltok_core.evaluation.score import score_windows, spread
from rltok_core.evaluation.segmentation import WhitespaceShare
from rltok_core.model.unet import UNet


def validate(
    model: UNet, windows: Windows, run: RunConfig, target_rate: float
) -> dict[str, float | None]:
    """bpb, bpb_early, boundary_rate, whitespace_share of up to validation_sequences windows.

    Args:
        windows: of the validation split.
        target_rate: what training asks for now; differs from the run's own in a curriculum.
    """
    indices = spread(len(windows), run.training.validation_sequences)
    seed = run.evaluation.stream_seed
    batch_size = run.runtime.micro_batch or run.training.batch_size
    corpus, spaces = CorpusScore(), WhitespaceShare()
    boundaries = positions = 0
    was_training = model.training
    model.eval()
    for score in score_windows(
        model, windows, indices, seed, target_rate, batch_size, run.runtime.device
    ):
        marked = 1 + int(score.boundary.sum())  # bos is a forced boundary
        boundaries, positions = boundaries + marked, positions + 1 + len(score.boundary)
        corpus.document(score.document).add(score.nats, score.nats_early, marked)
        spaces.add(windows.store[score.document][score.slice], score.boundary)
    model.train(was_training)
    return {
        "bpb": corpus.bpb,
        "bpb_early": corpus.bpb_early,
        "boundary_rate": boundaries / positions,
        "whitespace_share": spaces.share,
    }
