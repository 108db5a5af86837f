"""The one table: typed cells, written to a terminal and as Markdown; `html` writes it to a page.

Numbers stay numbers up to the writer: a page sorts by them, and no text is ever read back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich import box, table
from rich.markup import escape

from sampa.lab.results.summary import Quartiles, Summary, plus_minus


@dataclass(frozen=True)
class Words:
    text: str


@dataclass(frozen=True)
class Number:
    """A number with a format, as of f-strings, and a unit."""

    value: float
    spec: str = ".2f"
    unit: str = ""

    @property
    def text(self) -> str:
        return f"{self.value:{self.spec}}{self.unit}"


@dataclass(frozen=True)
class Estimate:
    """A mean with its standard deviation, or a difference with its margin.

    Attributes:
        unsure: Whether it is too small to be told from chance.
    """

    value: float
    error: float | None
    decimals: int = 2
    signed: bool = False
    unsure: bool = False

    @property
    def text(self) -> str:
        return plus_minus(self.value, self.error, self.decimals, signed=self.signed)


@dataclass(frozen=True)
class Range:
    """Whole numbers from a lowest to a highest, sorted by their mean."""

    low: int
    high: int
    value: float

    @property
    def text(self) -> str:
        return f"{self.low}" if self.low == self.high else f"{self.low}–{self.high}"


@dataclass(frozen=True)
class Median:
    """A median with its quartiles."""

    value: float
    low: float
    high: float
    decimals: int = 2

    @property
    def text(self) -> str:
        median, low, high = (f"{v:.{self.decimals}f}" for v in (self.value, self.low, self.high))
        return f"{median} ({low} to {high})"


@dataclass(frozen=True)
class Absent:
    text: str = "–"


Cell = Words | Number | Estimate | Range | Median | Absent
ABSENT = Absent()


def row(*values: str | float | Cell | None) -> tuple[Cell, ...]:
    """Cells of plain values: text, whole numbers with commas, others with two decimals; None."""
    return tuple(map(_cell, values))


def _cell(value: str | float | Cell | None) -> Cell:
    if isinstance(value, str):
        return Words(value)
    if isinstance(value, int | float):
        return Number(value, "," if isinstance(value, int) else ".2f")
    return ABSENT if value is None else value


def mean(found: Summary, decimals: int = 2) -> Estimate:
    """The mean of some numbers, with their standard deviation."""
    return Estimate(found.mean, found.std, decimals)


def difference(found: Summary | None, decimals: int = 2) -> Cell:
    """The mean of some differences, with the margin of its interval."""
    if found is None:
        return ABSENT
    return Estimate(found.mean, found.margin, decimals, signed=True, unsure=not found.is_sure)


def median(found: Quartiles | None, decimals: int = 2) -> Cell:
    """The median of some numbers, with their quartiles."""
    return ABSENT if found is None else Median(found.median, found.low, found.high, decimals)


def seconds(value: float) -> Cell:
    """With one decimal where it matters."""
    if not math.isfinite(value):
        return ABSENT
    return Number(value, ".1f" if value < 100 else ",.0f")


@dataclass(frozen=True)
class Table:
    """A table; its first column names the rows.

    Attributes:
        notes: Sentences below it.
        looks: For each row the number of its look in charts, where a page shows a key to them.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    looks: tuple[int, ...] = ()

    @property
    def has_unsure(self) -> bool:
        return any(isinstance(cell, Estimate) and cell.unsure for row in self.rows for cell in row)

    def is_numeric(self, column: int) -> bool:
        """Whether a column is aligned to the right."""
        return not all(isinstance(row[column], Words | Absent) for row in self.rows)

    def without_empty_columns(self) -> Table:
        """Only the columns in which something is written."""
        kept = [
            i
            for i in range(len(self.columns))
            if any(row[i] != ABSENT and row[i].text for row in self.rows)
        ]
        return replace(
            self,
            columns=tuple(self.columns[i] for i in kept),
            rows=tuple(tuple(row[i] for i in kept) for row in self.rows),
        )


def for_terminal(shown: Table) -> table.Table:
    """The table for rich's console."""
    made = table.Table(box=box.SIMPLE_HEAD, title=escape(shown.title))
    made.caption = escape(" ".join(filter(None, shown.notes))) or None
    for i, column in enumerate(shown.columns):
        numeric = shown.is_numeric(i)
        made.add_column(escape(column), justify="right" if numeric else "left", no_wrap=numeric)
    for row in shown.rows:
        made.add_row(*(escape(cell.text) for cell in row))
    return made


def as_markdown(shown: Table) -> list[str]:
    """The lines of the table, without title and notes."""
    marks = ["--:" if shown.is_numeric(i) else "---" for i in range(len(shown.columns))]
    rows = [[cell.text for cell in row] for row in shown.rows]
    return [_line(shown.columns), f"|{'|'.join(marks)}|", *map(_line, rows)]


def _line(cells: Sequence[str]) -> str:
    escaped = " | ".join(cell.replace("|", r"\|") for cell in cells)
    return f"| {escaped} |"
