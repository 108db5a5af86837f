"""Tables on terminals of any width: all words of all cells are there, and no line is too long."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from sampa.lab.commands.train import recipe_table
from sampa.lab.results.fitted import Fitted
from sampa.lab.results.outcome import RESULTS, RunResult, read_outcome
from sampa.lab.results.outcome_tables import difference_table, method_table, value_table
from sampa.lab.results.sweep import Tried, points_of, sweep_table
from sampa.lab.results.table import Table

RECORDS = Path(__file__).parents[3] / "results" / "reproduce"
LONG = "sampa-0.2, label_noise=0.4, epochs=200"


def compared() -> Table:
    """As `sampa compare` prints it, with a method whose name is long."""
    results = {
        method: {
            seed: RunResult(test={"accuracy": 90.12 + i + seed}, seconds=1234.5)
            for seed in range(3)
        }
        for i, method in enumerate(("sgd", "sampa+sam-on", "friendly-sam", LONG))
    }
    return method_table("cifar10-resnet56", results, "accuracy", "sgd", with_epochs=True)


def swept() -> Table:
    points = points_of({"rho": [0.0125, 0.4], "lam": [0.0, 0.2]})
    results = {
        seed: RunResult(test={"accuracy": 1.0}, best_validation=90.5 + seed, seconds=1.0)
        for seed in range(3)
    }
    tried = [Tried(point, results) for point in points[1:]]
    return sweep_table("digits", "accuracy", [Tried(points[0], {}, (0, 1)), *tried], ["A note."])


def recorded() -> list[Table]:
    outcomes = [read_outcome(file) for file in sorted(RECORDS.glob(f"*/{RESULTS}"))]
    assert len(outcomes) > 5
    return [write(o) for o in outcomes if o for write in (value_table, difference_table)]


def printed(table: Table, width: int) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(Fitted(table))
    return console.export_text()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_nothing_is_cut_at_any_width(width: int) -> None:
    for table in (compared(), swept(), recipe_table(), *recorded()):
        text = printed(table, width)
        assert max(map(cell_len, text.splitlines())) <= width, table.title
        assert "…" not in text
        words = [word for row in table.rows for cell in row for word in cell.text.split()]
        missing = set(words) - set(text.split())
        assert not missing, (table.title, missing)


def test_method_names_stay_on_one_line_if_there_is_room() -> None:
    rows = printed(compared(), 80).splitlines()
    for name in ("sgd", "sampa+sam-on", "friendly-sam"):
        assert any(re.match(rf" +{re.escape(name)} +3 ", row) for row in rows)


def test_a_number_breaks_before_its_deviation_where_it_must() -> None:
    assert re.search(r"91\.12 ± 1\.00", printed(compared(), 120))
    assert re.search(r"91\.12 ± 1\.00", printed(compared(), 80))
    narrow = printed(compared(), 66)
    assert "91.12 ± 1.00" not in narrow
    assert re.search(r"^.*± 1\.00.*$", narrow, flags=re.MULTILINE)


def test_what_is_too_wide_for_columns_becomes_a_list() -> None:
    text = printed(compared(), 30)
    assert max(map(len, text.splitlines())) <= 30
    assert re.search(r"^method +friendly-sam *$", text, flags=re.MULTILINE)
