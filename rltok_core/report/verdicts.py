"""When does a number of ours speak for or against a published one? The rule, in one place.

A value has a verdict only at the paper's own scale and with an interval over seeds. The order of
methods is counted pair by pair, each resolved by its paired interval or left open; at another
scale the counts are shown and no verdict is drawn.
"""

from itertools import combinations
from typing import NamedTuple

from rltok_core.config.schema import RunConfig
from rltok_core.report.rows import Row
from rltok_core.report.statistics import Estimate, paired

OTHER_SCALE = "another scale: no verdict"
VALUE_RULE = (
    "Verdict on a value: 'agrees' if the published value lies in our 95 % interval over seeds, "
    "'differs' if not; none with one seed; none at another scale, that is unless the corpus, the "
    "size and the training bytes (within 10 %) are the paper's and neither the rate curriculum nor "
    "the controller was on."
)
ORDER_RULE = (
    "Order: of every two methods that both have, 'same' if our paired 95 % interval over seeds "
    "lies on the paper's side of 0, 'reversed' if on the other, 'open' if it holds 0. Verdict, at "
    "the paper's scale alone: 'same order' if none is reversed and some are the same."
)


class Setting(NamedTuple):
    """What one of the paper's tables was measured on; `path` is the dataset's name on the hub."""

    corpus: str
    path: str
    size: str
    training_bytes: float

    def __str__(self) -> str:
        return f"{self.corpus}, {self.size}"


MAIN = Setting("FineWeb", "fineweb", "147M", 6.0e9)
CODE = Setting("CodeParrot", "codeparrot", "90M", 3.4e9)
ABLATIONS = Setting("FineWeb", "fineweb", "40M", 1.5e9)


def departures(run: RunConfig, setting: Setting) -> list[str]:
    """What keeps a run from being at the paper's scale; empty if nothing does."""
    training = run.training
    seen = training.steps * training.batch_size * training.seq_len
    checks = {
        # whoever's copy it is; but fineweb-edu and fineweb-2 are other text
        "corpus": getattr(run.data.source, "path", "").rpartition("/")[2].lower() == setting.path,
        "size": run.model.size == setting.size,
        "training bytes": abs(seen / setting.training_bytes - 1) <= 0.1,
        "curriculum": training.curriculum is None,
        "controller": training.controller is None,
    }
    return [name for name, alike in checks.items() if not alike]


def value_verdict(found: Estimate | None, published: float | None, away: list[str]) -> str:
    """The verdict on one number; `away` is what `departures` returned."""
    if found is None:
        return "no run"
    if published is None:
        return "not published"
    if away:
        return OTHER_SCALE
    if found.low is None:
        return "one seed: no verdict"
    return "agrees" if found.low <= published <= found.high else "differs"


class Order(NamedTuple):
    """How many pairs of methods stand as in the paper."""

    same: int
    reversed: int
    open: int
    away: list[str]

    def __str__(self) -> str:
        pairs = self.same + self.reversed + self.open
        if not pairs:
            return "fewer than two methods: no order"
        counts = f"{self.same} same, {self.reversed} reversed, {self.open} open of {pairs} pairs"
        if self.away:
            return f"{counts} ({OTHER_SCALE}: other {', '.join(self.away)})"
        verdict = "same order" if self.same and not self.reversed else "not the same order"
        return f"{verdict if self.same + self.reversed else 'order not resolved'} ({counts})"


def order(rows: list[tuple[Row, float]], path: tuple[str, ...], setting: Setting) -> Order:
    """Compare the order of methods with the paper's.

    Args:
        rows: each with its published number; equal published numbers have no order.
        path: where the evaluation has ours (Row.by_seed).
    """
    counts = {"same": 0, "reversed": 0, "open": 0}
    for (a, published_a), (b, published_b) in combinations(rows, 2):
        found = paired(a.by_seed(*path), b.by_seed(*path))
        if found is None or published_a == published_b:
            continue
        low, high = found.difference.low, found.difference.high
        if low is None or low <= 0 <= high:
            counts["open"] += 1
        else:
            counts["same" if (low > 0) == (published_a > published_b) else "reversed"] += 1
    away = [name for row, _ in rows for name in departures(row.run, setting)]
    return Order(**counts, away=list(dict.fromkeys(away)))
