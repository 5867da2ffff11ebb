"""What the rate curriculum does to each method, where runs have both.

Two rows are a pair if their runs differ in the curriculum alone: the same label, data, network,
estimator and training. The effect is paired over seeds; the order of the methods is that of mean
BPB without and with it, and two methods have changed places for certain only if both orders stand
out from the spread over seeds.
"""

import itertools
import json
from dataclasses import dataclass

from scipy import stats

from rltok_core.report.edition import Block, Edition, NothingToShow, Table
from rltok_core.report.reading import interval, method, number, signed
from rltok_core.report.rows import Row, settings
from rltok_core.report.statistics import INTERVAL, Paired, paired

COLUMNS = [
    *("data", "size", "estimator", "n_pairs"),
    *("bpb_without", "bpb_with", "difference", "low", "high", "rank_without", "rank_with"),
    *("rate_without", "rate_with", "mid_usage_without", "mid_usage_with"),
]


@dataclass(frozen=True)
class Effect:
    """One method without and with the curriculum; `paired` is with minus without."""

    plain: Row
    moved: Row
    paired: Paired


def effects(all_rows: list[Row]) -> dict[tuple[str, str], list[Effect]]:
    """Every pair that shares a seed, by (data, size), in the order of the rows."""
    plain: dict[str, Row] = {}
    found: dict[tuple[str, str], list[Effect]] = {}
    for row in all_rows:
        if row.run.training.curriculum is None:
            plain[_but_for_it(row)] = row
    for row in all_rows:
        other = plain.get(_but_for_it(row))
        if row.run.training.curriculum is None or other is None:
            continue
        difference = paired(row.by_seed("bpb"), other.by_seed("bpb"))
        if difference:
            found.setdefault((row.data, row.size), []).append(Effect(other, row, difference))
    return found


def _but_for_it(row: Row) -> str:
    rest = settings(row, "training.curriculum")
    return json.dumps([row.size, row.label, rest], sort_keys=True)


def ranks(values: list[float]) -> list[int]:
    """1 for the lowest."""
    return [int(rank) for rank in stats.rankdata(values, method="min")]


def order_words(found: list[Effect]) -> str:
    """Whether the order of the methods changes, in words with its numbers."""
    before, after = _means(found)
    names = [effect.plain.label for effect in found]

    def listed(values):
        return ", ".join(name for _, name in sorted(zip(values, names, strict=True)))

    turned = [
        (a, b)
        for a, b in itertools.combinations(range(len(found)), 2)
        if (before[a] - before[b]) * (after[a] - after[b]) < 0
    ]
    certain = [(a, b) for a, b in turned if _stands_out(found[a], found[b])]
    tau = stats.kendalltau(before, after).statistic if len(found) > 1 else 1.0
    pairs = len(found) * (len(found) - 1) // 2
    words = (
        f"Order without the curriculum, best first: {listed(before)}. With it: {listed(after)}. "
        f"Kendall's tau of the two is {tau:.2f}: {len(turned)} of {pairs} pairs of methods change "
        f"places in the mean, {len(certain)} of them beyond both, by {INTERVAL}"
    )
    if certain:
        words += " (" + ", ".join(f"{names[a]} and {names[b]}" for a, b in certain) + ")"
    return words + "."


def _rows(effect: Effect) -> tuple[Row, Row]:
    return effect.plain, effect.moved


def _mean(row: Row) -> float:
    return row.bpb.mean


def _means(found: list[Effect]) -> tuple[list[float], list[float]]:
    """Mean BPB of each method without, and with."""
    return [_mean(e.plain) for e in found], [_mean(e.moved) for e in found]


def _stands_out(one: Effect, other: Effect) -> bool:
    """Both differences of the two methods, without and with, have intervals that exclude 0."""
    for mine, theirs in zip(_rows(one), _rows(other), strict=True):
        found = paired(mine.by_seed("bpb"), theirs.by_seed("bpb"))
        if found is None or found.difference.low is None:
            return False
        if found.difference.low <= 0 <= found.difference.high:
            return False
    return True


HEADER = ["method", "n", "without", "with", "difference", "rank", "rate", "mid-usage"]


def curriculum_table(edition: Edition) -> Table:
    """Every method that has runs without and with the curriculum.

    Raises:
        NothingToShow: no method has.
    """
    found = effects(edition.rows)
    if not found:
        raise NothingToShow("runs that differ in the curriculum alone (experiment curriculum)")
    blocks, records, words = [], [], []
    for (data, size), pairs in found.items():
        block = Block(f"{data}, {size}", HEADER)
        before, after = map(ranks, _means(pairs))
        for place, effect in enumerate(pairs):
            record = _record(data, size, effect, (before[place], after[place]))
            block.add(_line(effect, record), effect.moved)
            records.append(record)
        blocks.append(block)
        words.append(f"{data}: {order_words(pairs)}")
    caption = (
        f"{edition.title}: test BPB of each method without and with the rate curriculum (not in "
        f"the paper). Difference: with minus without, paired over seeds, {INTERVAL}. Mid-usage: "
        f"BPB lost when the token level's output is left out. {' '.join(words)}"
    )
    return Table(blocks, caption, records, COLUMNS)


def _record(data: str, size: str, effect: Effect, places: tuple[int, int]) -> dict:
    plain, moved = _rows(effect)
    difference = effect.paired.difference
    values = (data, size, plain.label, difference.n, _mean(plain), _mean(moved))
    values += (*difference[:3], *places)
    for key in ("boundary_rate", "mid_usage"):
        values += (plain.boundary_mean(key), moved.boundary_mean(key))
    return dict(zip(COLUMNS, values, strict=True))


def _line(effect: Effect, record: dict) -> list[str]:
    return [
        method(effect.plain),
        str(record["n_pairs"]),
        number(record["bpb_without"]),
        number(record["bpb_with"]),
        interval(effect.paired.difference, signed),
        f"{record['rank_without']} → {record['rank_with']}",
        *(
            f"{number(record[f'{key}_without'])} → {number(record[f'{key}_with'])}"
            for key in ("rate", "mid_usage")
        ),
    ]
