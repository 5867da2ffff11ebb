"""What a table or figure is made from (Edition) and what it gives back (Table or Picture)."""

from dataclasses import dataclass, field
from functools import cached_property

from matplotlib.figure import Figure

from rltok_core.report.collect import Collection
from rltok_core.report.rows import BASELINE, Comparison, Row, compare, rows
from rltok_core.report.style import MethodStyle, method_styles


class NothingToShow(Exception):
    """No run recorded what the table or figure shows; the message says what is missing."""


@dataclass(frozen=True)
class Edition:
    """An experiment's runs as rows, each method's look, and what methods are compared with.

    Attributes:
        baseline: label of the row that differences are taken to.
    """

    collection: Collection
    baseline: str = BASELINE

    @cached_property
    def rows(self) -> list[Row]:
        """Every planned row, done or not, in the matrix's order."""
        return rows(self.collection)

    @property
    def done(self) -> list[Row]:
        """Rows with at least one finished run."""
        return [row for row in self.rows if row.done]

    @cached_property
    def styles(self) -> dict[str, MethodStyle]:
        """By row name; the same in every figure."""
        return method_styles([row.name for row in self.rows])

    @cached_property
    def comparisons(self) -> dict[int, Comparison]:
        """By the row's place in `rows`; only rows that share a seed with the baseline."""
        found = {i: compare(row, self.rows, self.baseline) for i, row in enumerate(self.rows)}
        return {i: comparison for i, comparison in found.items() if comparison}

    @property
    def title(self) -> str:
        return self.collection.experiment.title or self.collection.experiment.name


@dataclass
class Block:
    """A readable table: texts only; the first column names the line.

    Attributes:
        rows: the Row that each line's numbers come from, None where they are nobody's of ours.
    """

    title: str
    header: list[str]
    lines: list[list[str]] = field(default_factory=list)
    rows: list[Row | None] = field(default_factory=list)

    def add(self, line: list[str], row: Row | None = None) -> None:
        assert len(line) == len(self.header), (line, self.header)
        self.lines.append(line)
        self.rows.append(row)


@dataclass(frozen=True)
class Table:
    """NAME.csv (records, every number at full precision), NAME.md and NAME.tex (blocks, caption).

    Attributes:
        records: one dict a csv line, all with the same keys.
        columns: the csv's header; by default the first record's keys.
        shown: whether the blocks are on the report's page.
    """

    blocks: list[Block]
    caption: str
    records: list[dict]
    columns: list[str] = field(default_factory=list)
    shown: bool = True


@dataclass(frozen=True)
class Picture:
    """A figure, or several of one kind.

    Attributes:
        figures: by file stem; the key "" stands for the product's own name.
        kinds: file formats.
        shown: whether the pictures are on the report's page.
    """

    figures: dict[str, Figure]
    caption: str
    kinds: tuple[str, ...] = ("png", "svg", "pdf")
    shown: bool = True


def picture(figure: Figure, caption: str) -> Picture:
    """The usual case: one figure under the product's name."""
    return Picture({"": figure}, caption)
