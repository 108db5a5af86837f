"""The one table: cells, written as Markdown; `fitted` writes it to a terminal, `html` to a page.

Numbers stay numbers up to the writer: a page sorts by them, and no text is ever read back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress

from sampa.lab.results.summary import Quartiles, Summary, plus_minus


@dataclass(frozen=True)
class Cell:
    """What is written, and the number behind it.

    Attributes:
        value: What a page sorts by; None for words.
        unsure: Whether it is too small to be told from chance.
    """

    text: str
    value: float | None = None
    unsure: bool = False


ABSENT = Cell("–")


def row(*values: str | float | Cell | None) -> tuple[Cell, ...]:
    """Cells of plain values: text, whole numbers with commas, others with two decimals; None."""
    return tuple(map(_cell, values))


def _cell(value: str | float | Cell | None) -> Cell:
    if isinstance(value, Cell):
        return value
    if isinstance(value, str):
        return Cell(value)
    return number_cell(value, "," if isinstance(value, int) else ".2f")


def number_cell(value: float | None, spec: str = ".2f", unit: str = "") -> Cell:
    """A number with a format, as of f-strings, and a unit."""
    return ABSENT if value is None else Cell(f"{value:{spec}}{unit}", value)


def mean(found: Summary, decimals: int = 2) -> Cell:
    """The mean of some numbers, with their standard deviation."""
    return Cell(plus_minus(found.mean, found.std, decimals), found.mean)


def difference(found: Summary | None, decimals: int = 2) -> Cell:
    """The mean of some differences, with the margin of its interval."""
    if found is None:
        return ABSENT
    text = plus_minus(found.mean, found.margin, decimals, signed=True)
    return Cell(text, found.mean, unsure=not found.is_sure)


def median(found: Quartiles | None, decimals: int = 2) -> Cell:
    """The median of some numbers, with their quartiles."""
    if found is None:
        return ABSENT
    middle, low, high = (f"{v:.{decimals}f}" for v in (found.median, found.low, found.high))
    return Cell(f"{middle} ({low} to {high})", found.median)


def seconds(value: float) -> Cell:
    """With one decimal where it matters."""
    return number_cell(value, ".1f" if value < 100 else ",.0f") if math.isfinite(value) else ABSENT


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
        return any(cell.unsure for row in self.rows for cell in row)

    def is_numeric(self, column: int) -> bool:
        """Whether a column is aligned to the right."""
        return any(row[column].value is not None for row in self.rows)

    def without_empty_columns(self) -> Table:
        """Only the columns in which something is written."""
        every = range(len(self.columns))
        written = [any(row[i].text and row[i] != ABSENT for row in self.rows) for i in every]
        rows = tuple(tuple(compress(row, written)) for row in self.rows)
        return replace(self, columns=tuple(compress(self.columns, written)), rows=rows)


def as_markdown(shown: Table) -> list[str]:
    """The lines of the table, without title and notes."""
    marks = ["--:" if shown.is_numeric(i) else "---" for i in range(len(shown.columns))]
    rows = [[cell.text for cell in row] for row in shown.rows]
    return [_line(shown.columns), f"|{'|'.join(marks)}|", *map(_line, rows)]


def _line(cells: Sequence[str]) -> str:
    escaped = " | ".join(cell.replace("|", r"\|") for cell in cells)
    return f"| {escaped} |"
