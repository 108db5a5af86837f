"""The one table on a terminal, as wide as that is: no name and no number is ever cut.

Where there is too little room, headings and words go on in the next line, then the names of rows,
then numbers before their deviation; and where even that is too wide, each row becomes a list.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich import box, table
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.markup import escape

from sampa.lab.results.table import Table
from sampa.lab.terminal import harmless


@dataclass(frozen=True)
class Column:
    """A column on its way to the terminal.

    Attributes:
        whole: Whether its cells may not break between words.
    """

    name: str
    cells: Sequence[str]
    numeric: bool
    whole: bool

    @property
    def least(self) -> int:
        """The width below which something would be cut."""
        cells = self.cells if self.whole else [word for text in self.cells for word in text.split()]
        return _widest([*cells, *self.name.split()])

    @property
    def natural(self) -> int:
        """The width at which nothing goes on in the next line."""
        return _widest([self.name, *self.cells])


def _widest(texts: Sequence[str]) -> int:
    return max((cell_len(line) for text in texts for line in text.split("\n")), default=0)


@dataclass(frozen=True)
class Fitted:
    """A table for rich's console."""

    shown: Table

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> Iterator[table.Table]:
        for names, numbers in ((True, True), (False, True), (False, False)):
            columns = _columns(self.shown, whole_names=names, whole_numbers=numbers)
            room = options.max_width - 3 * len(columns) - 1  # for what is between them
            if sum(column.least for column in columns) <= room:
                yield _as_table(self.shown, columns, room)
                return
        yield _as_list(self.shown)


def _columns(shown: Table, *, whole_names: bool, whole_numbers: bool) -> list[Column]:
    found: list[Column] = []
    for i, name in enumerate(shown.columns):
        numeric = shown.is_numeric(i)
        cells = [harmless(row[i].text) for row in shown.rows]
        if numeric and not whole_numbers:
            cells = [text.replace(" ± ", "\n± ") for text in cells]
        whole = numeric or (i == 0 and whole_names)
        found.append(Column(harmless(name), cells, numeric, whole))
    return found


def widths(columns: Sequence[Column], room: int) -> list[int]:
    """The least that each column needs, and an even share of what is left as far as it helps."""
    found = [column.least for column in columns]
    wanted = [column.natural - column.least for column in columns]
    left, order = room - sum(found), sorted(range(len(columns)), key=lambda i: wanted[i])
    for place, i in enumerate(order):
        share = min(wanted[i], left // (len(order) - place))
        found[i] += share
        left -= share
    return found


def _as_table(shown: Table, columns: Sequence[Column], room: int) -> table.Table:
    made = table.Table(box=box.SIMPLE_HEAD, title=_plain(shown.title))
    made.caption = _caption(shown)
    for column, width in zip(columns, widths(columns, room), strict=True):
        justify = "right" if column.numeric else "left"
        made.add_column(escape(column.name), justify=justify, width=width, overflow="fold")
    for cells in zip(*(column.cells for column in columns), strict=True):
        made.add_row(*map(escape, cells))
    return made


def _as_list(shown: Table) -> table.Table:
    made = table.Table.grid(padding=(0, 2))
    made.title, made.caption = _plain(shown.title), _caption(shown)
    made.add_column(style="dim", overflow="fold", ratio=1)
    made.add_column(overflow="fold", ratio=1)
    for row in shown.rows:
        for name, cell in zip(shown.columns, row, strict=True):
            if cell.text:
                made.add_row(_plain(name), _plain(cell.text))
        made.add_row()
    return made


def _caption(shown: Table) -> str | None:
    return _plain(" ".join(filter(None, shown.notes))) or None


def _plain(text: str) -> str:
    """Text in which neither the terminal nor rich finds a command."""
    return escape(harmless(text))
