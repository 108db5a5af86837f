"""One table, three writers: the same cells in a terminal, in Markdown and in a page."""

from __future__ import annotations

import re

from rich.console import Console

from sampa.lab.results.fitted import Fitted
from sampa.lab.results.html import as_html
from sampa.lab.results.summary import summarize
from sampa.lab.results.table import (
    ABSENT,
    Cell,
    Table,
    as_markdown,
    difference,
    mean,
    number_cell,
    seconds,
)

EVIL = "<b>[red]|`"
TABLE = Table(
    title="scores",
    columns=("method", "n", "score", "against sgd", "epochs", "verdict"),
    rows=(
        (
            Cell("sgd"),
            number_cell(3, "d"),
            mean(summarize([1.0, 2.0, 3.0])),
            ABSENT,
            ABSENT,
            ABSENT,
        ),
        (
            Cell(EVIL),
            number_cell(2, "d", " %"),
            mean(summarize([-4.0]), 1),
            difference(summarize([-1.0, -3.0])),
            Cell("3–5", 4.5),
            Cell("below"),
        ),
    ),
    notes=("A note.",),
)


def printed(table: Table) -> str:
    console = Console(width=120, record=True)
    console.print(Fitted(table))
    return console.export_text()


def test_every_writer_shows_every_cell() -> None:
    texts = ("2.00 ± 1.00", "2 %", "-4.0", "-2.00 ± 12.71", "3–5", "below", "–")
    for written in (printed(TABLE), "\n".join(as_markdown(TABLE))):
        assert all(text in written for text in texts)
    page = re.sub(r"<[^>]*>", "", as_html(TABLE))  # an error is in an element of its own
    assert all(text.replace("-", "−") in page for text in texts)


def test_markup_stays_text() -> None:
    assert EVIL in printed(TABLE)
    assert r"<b>[red]\|`" in as_markdown(TABLE)[-1]
    assert "&lt;b&gt;[red]|`" in as_html(TABLE)


def test_numbers_are_aligned_to_the_right_in_markdown() -> None:
    assert as_markdown(TABLE)[1] == "|---|--:|--:|--:|--:|---|"


def test_a_page_sorts_by_numbers_and_not_by_their_text() -> None:
    values = re.findall(r'data-value="([^"]*)"', as_html(TABLE))
    assert list(map(float, values)) == [3.0, 2.0, 2.0, -4.0, -2.0, 4.5]


def test_a_page_marks_what_is_too_small_to_tell() -> None:
    assert as_html(TABLE).count('class="unsure"') == 2  # the cell, and the note that explains it
    assert "unsure" not in as_html(Table("t", ("a",), ((Cell("x"),),)))


def test_a_column_without_entries_can_be_left_out() -> None:
    rows = ((Cell("a"), ABSENT, number_cell(1)), (Cell("b"), Cell(""), ABSENT))
    table = Table("t", ("name", "empty", "value"), rows).without_empty_columns()
    assert table.columns == ("name", "value")
    assert table.rows[1] == (Cell("b"), ABSENT)


def test_seconds_have_a_decimal_where_it_matters() -> None:
    shown = [seconds(value).text for value in (1.234, 99.94, 12345.6, float("nan"))]
    assert shown == ["1.2", "99.9", "12,346", "–"]
