"""What boundaries are like: agreement between methods, enrichment, stability, a suite of texts.

From evaluation.json, heatmap.json and probes.json; evaluations that were made before one of them
had these numbers leave gaps.
"""

from itertools import combinations

import numpy as np

from rltok_core.report.collect import Result
from rltok_core.report.curves import by_corpus, corpus_title, plain
from rltok_core.report.edition import Block, Edition, NothingToShow, Picture, Table, picture
from rltok_core.report.heatmaps import PROBABILITY
from rltok_core.report.reading import (
    DASH,
    LEAK_WORDS,
    leak_words,
    mark_words,
    method,
    number,
    signed,
)
from rltok_core.report.rows import Row
from rltok_core.report.style import INK, panels


def f1(a: np.ndarray, b: np.ndarray) -> float | None:
    """F1 of two sets of boundaries, bool (n,); None where neither has any."""
    total = int(a.sum()) + int(b.sum())
    return 2 * int((a & b).sum()) / total if total else None


def free_boundaries(result: Result) -> dict[tuple, np.ndarray]:
    """Boundaries of a run by text: bool, without those that are forced at a window's end.

    Texts are those of heatmap.json and, if the run has them, of probes.json, by their bytes.
    """
    step = result.run.training.seq_len - 1
    found = {}
    for text in [*result.heatmap, *result.probes.get("texts", [])]:
        boundary = np.asarray(text["boundary"], dtype=bool)
        keep = (np.arange(len(boundary)) + 1) % step != 0
        keep[-1] = False
        found[tuple(text["bytes"])] = boundary[keep]
    return found


def _pair(a: Row, b: Row) -> float | None:
    """F1 of two methods over the texts that both have, mean over the seeds that both have."""
    theirs = {result.run.seed: free_boundaries(result) for result in b.done}
    scores = []
    for result in a.done:
        ours, other = free_boundaries(result), theirs.get(result.run.seed, {})
        shared = [text for text in ours if text in other and len(ours[text]) == len(other[text])]
        if shared:
            joined = [np.concatenate([side[text] for text in shared]) for side in (ours, other)]
            scores.append(f1(*joined))
    scores = [score for score in scores if score is not None]
    return sum(scores) / len(scores) if scores else None


def agreement(edition: Edition) -> Table:
    """Pairwise F1 of the methods' boundaries on the same texts, one matrix a corpus."""
    blocks, records = [], []
    for corpus in edition.collection.corpora():
        rows = [row for row in edition.done if (row.data, row.size) == corpus and row.has_tokens]
        scores = {(a.name, b.name): _pair(a, b) for a, b in combinations(rows, 2)}
        if not any(score is not None for score in scores.values()):
            continue
        block = Block(f"{corpus[0]}, {corpus[1]}", ["method", *(row.name for row in rows)])
        for row in rows:
            pairs = [scores.get((row.name, o.name), scores.get((o.name, row.name))) for o in rows]
            block.add([method(row), *(number(score, 2) for score in pairs)], row)
        blocks.append(block)
        for (a, b), score in scores.items():
            record = dict(
                zip(("data", "size", "a", "b", "f1"), (*corpus, a, b, score), strict=True)
            )
            records.append(record)
    if not blocks:
        raise NothingToShow("no two methods have boundaries on the same text")
    caption = (
        "F1 of two methods' boundaries at the same bytes, on the heat maps' documents and the "
        "suite of texts, mean over the seeds that both have; forced ends are left out. Two "
        "independent random choices at rate r agree with F1 = r."
    )
    return Table(blocks, caption, records)


COLUMNS = {
    "enrichment": ("enrichment", "final"),
    "enrichment, early exit": ("enrichment", "early"),
    "entropy of token lengths": ("token_length_entropy",),
}
EDITS = {
    "kept, upper case": ("upper_case", "kept"),
    "kept, typo": ("typo", "kept"),
    "kept after the typo": ("typo", "kept_after"),
}


def _edits(row: Row, edit: str, key: str) -> float | None:
    found = [
        one[key]
        for result in row.done
        for one in result.probes.get("stability", [])
        if one["edit"] == edit and one[key] is not None
    ]
    return sum(found) / len(found) if found else None


def boundary_table(edition: Edition) -> Table:
    """Enrichment, entropy of token lengths, and what small edits of the text leave in place."""
    blocks, records = [], []
    for corpus in edition.collection.corpora():
        block = Block(f"{corpus[0]}, {corpus[1]}", ["method", *COLUMNS, *EDITS])
        for row in edition.done:
            if (row.data, row.size) != corpus or not row.has_tokens:
                continue
            values = [row.mean(*path) for path in COLUMNS.values()]
            values += [_edits(row, *path) for path in EDITS.values()]
            if any(value is not None for value in values):
                block.add([method(row), *(number(value, 2) for value in values)], row)
                names = ("data", "size", "estimator", "variant", *COLUMNS, *EDITS)
                values = (*corpus, row.label, row.variant, *values)
                records.append(dict(zip(names, values, strict=True)))
        if block.lines:
            blocks.append(block)
    if not blocks:
        raise NothingToShow("no evaluation has enrichment or stability (made before it had them)")
    caption = (
        "Enrichment (after SOMBRERO, arXiv 2601.22805): how much likelier a boundary is where the "
        "next byte is among the fifth that surprises the model most than anywhere; 1 is chance. "
        "Early exit: surprise without the token level. Entropy of token lengths in bits. Kept: F1 "
        "of the boundaries before and after an edit with the same random stream, edited bytes left "
        "out; after the typo: the bytes behind it alone. Means over seeds. "
        + mark_words(edition.done)
    )
    return Table(blocks, caption, records)


def evaluation_checks(edition: Edition) -> Table:
    """Can the numbers be trusted: leaks, sampled against thresholded, what look-ahead is worth."""
    blocks, records = [], []
    for corpus in edition.collection.corpora():
        here = [row for row in edition.done if (row.data, row.size) == corpus]
        block = Block(
            f"{corpus[0]}, {corpus[1]}",
            ["method", "BPB sampled", "sd over draws", "BPB threshold 0.5", "leak (nats)",
             "look-ahead is worth"],
        )  # fmt: skip
        for row in here:
            worst, draws = row.leak, row.mean("draws", "bpb_sd")
            twin = next((o for o in here if o.label == f"{row.label}_causal"), None)
            worth = None
            if row.causal is False and twin is not None:
                worth = twin.mean("bpb") - row.mean("bpb")
            block.add(
                [method(row), number(row.mean("bpb")), number(draws, 4),
                 number(row.mean("bpb_threshold")), leak_words(worst),
                 DASH if worth is None else signed(worth)],
                row,
            )  # fmt: skip
            names = "data size estimator variant bpb sd_draws bpb_threshold leak look_ahead"
            values = (*corpus, row.label, row.variant, row.mean("bpb"), draws)
            values += (row.mean("bpb_threshold"), worst, worth)
            records.append(dict(zip(names.split(), values, strict=True)))
        if block.lines:
            blocks.append(block)
    caption = (
        "Sampled: boundaries from the seeded stream, the main number; sd over draws: over further "
        "streams of the same weights, mean over seeds; threshold: a boundary where the probability "
        "is above 0.5 (uniform: as many as ever, evenly spread). "
        + LEAK_WORDS
        + " Look-ahead is worth: "
        "BPB of the causal variant less that of the method that looks ahead, each at its own "
        "realised rate. " + mark_words(edition.done)
    )
    return Table(blocks, caption, records)


def _rates(row: Row) -> dict[str, float]:
    """Boundary rate in the subject of each text of the suite, mean over seeds, by its title."""
    found: dict[str, list[float]] = {}
    for result in row.done:
        for text in result.probes.get("texts", []):
            found.setdefault(text["title"], []).append(text["rate"])
    return {title: sum(rates) / len(rates) for title, rates in found.items()}


def suite(edition: Edition) -> Picture:
    """What a run of one byte, a number, a URL, a licence ... get: boundary rates, one figure."""
    groups = by_corpus(
        [row for row in edition.done if row.has_tokens],
        lambda row: bool(_rates(row)),
        "no evaluation has the suite of texts (made before it had one)",
    )
    titles = list(dict.fromkeys(t for group in groups.values() for r in group for t in _rates(r)))
    sizes = [len(group) for group in groups.values()]
    figure, axes = panels(1, 0.55 * len(sizes) + 0.19 * sum(sizes) + 0.9, rows=len(sizes))
    figure.set_figwidth(6.75)
    axes[0, 0].get_gridspec().set_height_ratios(sizes)  # rows of one height
    for ax, (key, group) in zip(axes[:, 0], groups.items(), strict=True):
        rates = np.array([[_rates(row).get(title, np.nan) for title in titles] for row in group])
        ax.imshow(rates, vmin=0, vmax=1, cmap=PROBABILITY, aspect="auto")
        for (y, x), rate in np.ndenumerate(rates):
            words = DASH if np.isnan(rate) else f"{rate:.2f}"
            ax.text(x, y, words, ha="center", va="center", fontsize=7, color=INK)
        ax.set_yticks(range(len(group)), [plain(row.name) for row in group])
        shown = titles if ax is axes[-1, 0] else [""] * len(titles)
        ax.set_xticks(range(len(titles)), shown, rotation=20, ha="right", rotation_mode="anchor")
        ax.grid(visible=False)
        ax.tick_params(length=0)
        ax.set_title(f"trained on {corpus_title(key)}, target {group[0].target_rate:g}")
    caption = (
        "Boundaries a byte in the part of each text that it is about (the run of one byte, the "
        "number, ...; around them is prose), mean over seeds. Every model reads the same texts, "
        "whatever it was trained on."
    )
    return picture(figure, caption)
