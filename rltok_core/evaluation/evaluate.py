"""Everything that is measured of one model on the test split of its data.

The model is run several times over the same windows: with boundaries sampled from the seeded stream
(the main figures), with 0.5 in place of every random number (a threshold on the probability; the
same as sampled for a rule that draws none), with the token level stale or zeroed, which says what
it is worth, and with further draws of the stream, where there is any. Then it is
audited for leaks (audit.py) and asked about the little suite of texts (probes.py).
What is not defined (no whitespace in the text, no token level, no known truth) is None.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from rltok_core.boundaries.contract import HintReader
from rltok_core.data.batches import Windows
from rltok_core.data.store import ByteStore
from rltok_core.errors import UserError
from rltok_core.evaluation.audit import audit
from rltok_core.evaluation.bits import LN2, CorpusScore
from rltok_core.evaluation.heatmap import heatmap
from rltok_core.evaluation.probes import probes
from rltok_core.evaluation.score import WindowScore, score_windows, spread
from rltok_core.evaluation.segmentation import (
    Agreement,
    TokenLengths,
    WhitespaceShare,
    word_starts,
)
from rltok_core.evaluation.subject import Subject
from rltok_core.evaluation.text import open_hints
from rltok_core.evaluation.words import character_starts, segmented_words
from rltok_core.training import schedule
from rltok_core.training.inputs import prepared_hints, read_data_hash, read_hints
from rltok_core.training.manifest import provenance
from rltok_core.training.watch import out_of_bounds

SPLIT = "test"
MAX_BINS = 64  # of the figures by position
HARD_SHARE = 0.2  # of positions, whose next byte counts as surprising


@dataclass(frozen=True)
class HeldOut:
    """The test split, and what is known of its boundaries.

    Attributes:
        manifest: the data folder's manifest.json.
        hints: what the estimator is given, uint8, one a byte of the store; None if nothing.
        bpe: first bytes of BPE tokens, likewise; None if not given.
        reader: makes the estimator's hints for other text; None if it needs none or can't.
        unread: why the estimator can't read other text; "" if it can.
    """

    store: ByteStore
    manifest: dict
    hints: np.ndarray | None
    bpe: np.ndarray | None
    reader: HintReader | None = None
    unread: str = ""


def read_held_out(subject: Subject, data: Path, prepared: Path | None, bpe: Path | None) -> HeldOut:
    """Open the test split for a model.

    Raises:
        UserError: missing files; data other than the model was trained on; no truth or nothing
            prepared where the estimator needs it.
    """
    found = read_data_hash(subject.run, data)
    if subject.data_hash not in (None, found):
        raise UserError(
            f"{data}: its content hash is {found[:8]}, but {subject.id} was trained on "
            f"{subject.data_hash[:8]}; a model is only evaluated on its own data's {SPLIT} split"
        )
    manifest = json.loads((data / "manifest.json").read_text(encoding="utf-8"))
    store = ByteStore.open(data / SPLIT)
    hints = read_hints(type(subject.model.estimator), store, SPLIT, data, prepared)
    reference = None if bpe is None else prepared_hints(bpe, store, SPLIT)
    reader, unread = None, ""
    try:
        reader = open_hints(subject.run, data, prepared)
    except UserError as error:
        # the figures on the split need no other text; the audit and the probes say what is missing
        unread = str(error)
    return HeldOut(store, manifest, hints, reference, reader, unread)


def _by_position(scores: list[WindowScore], n_positions: int) -> dict[str, list]:
    """Boundary probability and bits by a byte's place in its window, in at most MAX_BINS bins.

    index is the mean place of a bin's scored bytes, count how many there are; forced ends have no
    probability of the model's, so boundary_prob leaves them out (None where nothing is left).
    """
    bins = min(MAX_BINS, n_positions)
    sums = {name: np.zeros(bins) for name in ("place", "bits", "count", "prob", "free")}

    def add(name: str, bin_n: np.ndarray, value_n) -> None:
        sums[name] += np.bincount(bin_n, weights=value_n, minlength=bins)

    for score in scores:
        place_n = np.arange(len(score.nats))
        bin_n = place_n * bins // n_positions
        add("place", bin_n, place_n.astype(np.float64))
        add("bits", bin_n, score.nats.astype(np.float64) / LN2)
        add("count", bin_n, np.ones(len(place_n)))
        add("prob", bin_n[:-1], score.prob[:-1].astype(np.float64))
        add("free", bin_n[:-1], np.ones(len(place_n) - 1))
    seen = np.flatnonzero(sums["count"])
    return {
        "index": [float(sums["place"][b] / sums["count"][b]) for b in seen],
        "boundary_prob": [
            float(sums["prob"][b] / sums["free"][b]) if sums["free"][b] else None for b in seen
        ],
        "bpb": [float(sums["bits"][b] / sums["count"][b]) for b in seen],
        "count": [int(sums["count"][b]) for b in seen],
    }


def _words(store: ByteStore, segmenter: str) -> Callable[[WindowScore], np.ndarray]:
    """Where the words of a window start, by whitespace or by a segmenter of its document."""
    if segmenter == "whitespace":
        return lambda score: word_starts(np.asarray(store[score.document][score.slice]))

    @lru_cache(maxsize=4)  # a document's windows come one after the other
    def starts(document: int) -> np.ndarray:
        return segmented_words(store[document], segmenter, f"{store.folder}: document {document}")

    return lambda score: _without_first(starts(score.document)[score.slice])


def _without_first(starts: np.ndarray) -> np.ndarray:
    """A window's first byte is no start: what starts there has bos's forced boundary already."""
    return np.concatenate([np.zeros(min(1, len(starts)), dtype=bool), starts[1:]])


def _segmentation(scores: list[WindowScore], held_out: HeldOut, tolerance: int, by: str) -> dict:
    """Agreement of the sampled boundaries with words, characters, BPE and truth, where known."""
    store = held_out.store

    def characters(score: WindowScore) -> np.ndarray:
        return _without_first(character_starts(np.asarray(store[score.document][score.slice])))

    def stored(flags: np.ndarray) -> Callable[[WindowScore], np.ndarray]:
        def reference(score: WindowScore) -> np.ndarray:
            first = int(store.offsets[score.document]) + score.start
            return np.asarray(flags[first : first + len(score.nats)]) != 0

        return reference

    def agreement(reference: Callable[[WindowScore], np.ndarray], late: int = 0) -> Agreement:
        total = Agreement(late)
        for score in scores:
            total.add(score.boundary, reference(score))
        return total

    bpe, truth = held_out.bpe, store.truth
    words, starts = agreement(_words(store, by)), agreement(characters)
    return {
        "word_starts": words.scores(),
        "word_chance": words.chance,
        "words_by": by,
        "character_starts": starts.scores(),
        "character_chance": starts.chance,
        "bpe": None if bpe is None else agreement(stored(bpe)).scores(),
        "truth": None if truth is None else agreement(stored(truth)).scores(),
        "truth_tolerant": None if truth is None else agreement(stored(truth), tolerance).scores(),
    }


def _enrichment(scores: list[WindowScore]) -> dict:
    """How much likelier a boundary is where the next byte is surprising: P(a_i | hard) / P(a_i).

    After SOMBRERO's boundary enrichment (paper.md 9), in our definition: position i is hard if the
    surprisal of byte i + 1 is among the HARD_SHARE largest; "final" by the model itself, whose
    token level may have made a boundary's next byte easier already, "early" by the early exit,
    which knows no boundary. Forced last bytes are left out. 1 is chance; None: no boundary at all.
    """
    start = np.concatenate([score.boundary[:-1] for score in scores])
    base = start.mean() if len(start) else 0.0
    found = {"hard_share": HARD_SHARE}
    for name, field in (("final", "nats"), ("early", "nats_early")):
        found[name] = None
        if base:
            nats = np.concatenate([getattr(score, field)[1:] for score in scores])
            hard = nats >= np.quantile(nats, 1 - HARD_SHARE)
            found[name] = float(start[hard].mean() / base)
    return found


def _draws(first: CorpusScore, more: list[float], drawn: bool) -> dict:
    """BPB by several draws of the boundaries' stream; n = 1 for a rule that draws nothing."""
    bpb = [first.bpb, *more]
    spread_bits = float(np.std(bpb, ddof=1)) if len(bpb) > 1 else None
    return {"n": len(bpb), "drawn": drawn, "bpb": bpb, "bpb_sd": spread_bits}


def _corpus(scores: Iterable[WindowScore]) -> CorpusScore:
    corpus = CorpusScore()
    for score in scores:
        # bos's boundary is forced, and counts as a boundary on a valid position
        boundaries = 1 + int(np.count_nonzero(score.boundary))
        corpus.document(score.document).add(score.nats, score.nats_early, boundaries)
    return corpus


def evaluate(
    subject: Subject, held_out: HeldOut, check: Callable[[], None]
) -> tuple[dict, CorpusScore, dict, dict]:
    """Measure a model.

    Args:
        check: called before every batch; raises to stop.

    Returns:
        The values of evaluation.json, the scores by document, the values of heatmap.json and of
        probes.json.

    Raises:
        UserError: there is no byte to score.
    """
    run, store = subject.run, held_out.store
    settings, training = run.evaluation, run.training
    model = subject.model.to(run.runtime.device)
    windows = Windows(store, training.seq_len, run.data.windows, held_out.hints)
    indices = spread(len(windows), settings.sequences)
    if not indices:
        raise UserError(f"the {SPLIT} split of {run.data.name} has no byte to score")
    score = partial(
        score_windows,
        model,
        target_rate=training.target_rate,
        batch_size=settings.batch_size,
        device=run.runtime.device,
        check=check,
    )

    score_main = partial(score, stream_seed=settings.stream_seed)

    def corpus_bpb(draw: int = 0, **how) -> float:
        """Corpus bits per byte of another pass over the same windows."""
        return _corpus(score(windows, indices, settings.stream_seed + draw, **how)).bpb

    scores = list(score_main(windows, indices))
    corpus = _corpus(scores)
    threshold = list(score_main(windows, indices, constant=0.5))
    drawn = any((a.boundary != b.boundary).any() for a, b in zip(scores, threshold, strict=True))
    more = [corpus_bpb(draw) for draw in range(1, settings.draws if drawn else 1)]
    lengths, space = TokenLengths(), WhitespaceShare()
    for window in scores:
        lengths.add(window.boundary)
        space.add(np.asarray(store[window.document][window.slice]), window.boundary)

    has_mid = run.model.n_mid > 0
    learned = type(model.estimator).learned
    bpb_stale = corpus_bpb(mid="stale") if has_mid else None
    bpb_zeroed = corpus_bpb(mid="zero") if has_mid else None
    boundaries = sum(document.boundaries for document in corpus.documents.values())
    boundary_rate = boundaries / (corpus.n_bytes + len(scores))
    planted = held_out.manifest.get("planted")
    floor = planted["entropy_bits_per_byte"] if planted else None
    ratio = boundary_rate / training.target_rate
    result = {
        "run_id": subject.id,
        "run_hash": run.hash,
        "evaluation_hash": subject.evaluation_hash,
        "data_hash": held_out.manifest["content_hash"],
        "experiment": run.experiment,
        "data": run.data.name,
        "size": run.model.size,
        "label": subject.label,
        "seed": run.seed,
        "causal": type(model.estimator).causal,
        "learned": learned,
        "curriculum": schedule.curriculum_ends(training, learned) > 0,
        "controller": learned and training.controller is not None,
        "documents": len(corpus.documents),
        "windows": len(scores),
        "scored_bytes": corpus.n_bytes,
        "bpb": corpus.bpb,
        "bpb_early": corpus.bpb_early,
        "bpb_mean_documents": corpus.bpb_mean_documents,
        "bpb_threshold": _corpus(threshold).bpb,
        "draws": _draws(corpus, more, drawn),
        "bpb_stale": bpb_stale,
        "bpb_zeroed": bpb_zeroed,
        "mid_usage": bpb_zeroed - corpus.bpb if has_mid else None,
        "mid_stale": bpb_stale - corpus.bpb if has_mid else None,
        # boundaries over valid positions, bos and the forced ends included, as in training
        "boundary_rate": boundary_rate,
        "boundary_rate_free": space.rate,
        "target_rate": training.target_rate,
        "rate_flag": has_mid and out_of_bounds(ratio),
        "bytes_per_token": lengths.mean,
        "token_lengths": {str(n): lengths.counts[n] for n in sorted(lengths.counts)},
        "token_length_entropy": lengths.entropy,
        "enrichment": _enrichment(scores),
        "whitespace_share": space.share,
        "whitespace_chance": space.chance,
        "segmentation": _segmentation(
            scores, held_out, settings.boundary_tolerance, settings.words
        ),
        "boundary_tolerance": settings.boundary_tolerance,
        "floor_bpb": floor,
        "gap_bpb": None if floor is None else corpus.bpb - floor,
        # what the true model itself scores on the split's whole documents, whose first words have
        # no past: above the entropy rate, and all that a model could reach here
        "true_model_bpb": planted and planted["true_model_bits_per_byte"][SPLIT],
        "leak": audit(
            model,
            windows,
            held_out.reader,
            training.target_rate,
            settings.stream_seed,
            run.runtime.device,
        ),
        "positions": _by_position(scores, training.seq_len - 1),
        **_training_figures(subject.training),
        "manifest": provenance(run, held_out.manifest["content_hash"]),
        "status": "complete",
    }
    whole = Windows(store, training.seq_len, "all", held_out.hints)
    maps = heatmap(store, whole, settings, score_main)
    asked = {name: result[name] for name in ("run_id", "label", "seed", "causal")}
    if held_out.unread:
        asked |= {"suite_hash": None, "reason": held_out.unread, "texts": [], "stability": []}
    else:
        documents = [store[shown["document"]].tobytes() for shown in maps["documents"]]
        asked |= probes(run, held_out.reader, [d for d in documents if d], score_main)
    return result, corpus, maps, asked


def _training_figures(training: dict) -> dict:
    """What training.json says of the cost; all None for an oracle, which had no training."""
    names = {
        "flops_paper": "flops_paper",
        "flops_counted": "flops_counted",
        "train_seconds": "seconds",
        "bytes_per_second": "bytes_per_second",
        "peak_memory_bytes": "peak_memory_bytes",
    }
    return {ours: training[theirs] if training else None for ours, theirs in names.items()}
