"""Arithmetic of tables: paired differences, averages, verdicts; and their way through JSON."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from sampa.lab.conditions import Conditions
from sampa.lab.reproduce.records import outcome_page
from sampa.lab.results.charts import Chart, Line
from sampa.lab.results.outcome import Choice, Entry, Outcome, Tuned, with_average
from sampa.lab.results.outcome_tables import difference_table, value_table
from sampa.lab.results.paper import Published, Value
from sampa.lab.results.table import Table


def outcome(*entries: Entry, pairs: tuple[tuple[str, str], ...] = (("b", "a"),)) -> Outcome:
    return Outcome("an-id", "a title", "cpu", "some data", "tab:some", entries=entries, pairs=pairs)


A = Entry("row", "a", {0: 90.0, 1: 92.0, 2: 94.0}, Value(95.0, 0.1))
B = Entry("row", "b", {0: 91.0, 1: 94.0, 2: 97.0}, Value(95.5))


def test_differences_are_paired_by_seed() -> None:
    """1, 2, 3: mean 2, deviation 1, standard error 1/√3; unpaired it would be far larger."""
    (found,) = outcome(A, B).comparisons()
    assert found.ours.mean == pytest.approx(2)
    assert found.ours.standard_error == pytest.approx(1 / math.sqrt(3))
    assert found.ours.margin == pytest.approx(4.303 / math.sqrt(3), abs=1e-3)  # Student's t
    assert found.paper == pytest.approx(0.5)


def test_only_seeds_that_both_have_count() -> None:
    (found,) = outcome(A, Entry("row", "b", {1: 93.0, 7: 0.0})).comparisons()
    assert (found.ours.n, found.ours.mean) == (1, 1.0)


@pytest.mark.parametrize(
    ("values", "paper", "verdict"),
    [
        ({0: 92.0, 1: 94.5, 2: 97.0}, 95.5, "as in the paper"),
        ({0: 92.0, 1: 94.5, 2: 97.0}, 94.5, "not as in the paper"),
        ({0: 91.0, 1: 94.0, 2: 97.0}, 95.5, "too small to tell"),  # 3.5 standard errors: p = 0.07
        ({0: 91.0, 1: 91.0, 2: 94.0}, 95.5, "too small to tell"),
        ({0: 99.0}, 95.5, "too small to tell"),
        ({0: 90.0, 1: 92.0, 2: 94.0}, 95.5, "too small to tell"),  # no difference on any seed
        ({0: 91.0, 1: 93.0, 2: 95.0}, 95.5, "as in the paper"),  # the same one on every seed
    ],
)
def test_the_verdict_compares_the_order_with_the_papers(
    values: dict[int, float], paper: float, verdict: str
) -> None:
    (found,) = outcome(A, Entry("row", "b", values, Value(paper))).comparisons()
    assert found.verdict == verdict


def test_counts_are_not_tested() -> None:
    entries = (Entry("n", "a", {0: 2.0}, kind="count"), Entry("n", "b", {0: 1.0}, kind="count"))
    assert outcome(*entries).comparisons() == []


def test_a_median_stands_for_ratios_with_outliers() -> None:
    assert Entry("t", "a", {0: 1.0, 1: 2.0, 2: 90.0}, kind="median").ours.mean == 2.0
    assert Entry("t", "a", {0: 1.0, 1: 2.0, 2: 90.0}).ours.mean == 31.0


def test_the_average_row_is_taken_seed_by_seed() -> None:
    other = Entry("other", "a", {0: 80.0, 1: 84.0})
    known = Published("tab:some", {"Average": {"a": Value(88.0)}})
    *_, average = with_average([A, other], known)
    assert average == Entry("Average", "a", {0: 85.0, 1: 88.0}, Value(88.0))


def test_an_outcome_survives_json() -> None:
    chart = Chart("c", "C", "x", "y", [Line("l", [1.0], [2.0], [1.5], [2.5])], log_y=True)
    made = Outcome(
        *("an-id", "a title", "cpu", "about", "tab:some", "claim", "unit", 3),
        entries=(A, B, Entry("r", "c", {0: 1.0}, kind="median")),
        pairs=(("b", "a"),),
        charts=(chart,),
        facts=("a fact",),
        tuning={"clean": Tuned(Choice(0.1, 0.2), {"sam": 1.0})},
        conditions=Conditions({"commit": "abc"}),
    )
    text = json.dumps(made.as_json(), allow_nan=False)
    assert Outcome.from_json(json.loads(text)) == made


def test_a_strange_file_is_refused() -> None:
    with pytest.raises(ValueError, match="as sampa reproduce writes it"):
        Outcome.from_json({"id": "x"})


def texts(table: Table) -> list[list[str]]:
    return [[cell.text for cell in row] for row in table.rows]


def test_a_row_shows_paper_ours_n_and_difference() -> None:
    made = outcome(A, B)
    assert texts(value_table(made)) == [
        ["row", "a", "95.00 ± 0.10", "92.00 ± 2.00", "3", "-3.00"],
        ["row", "b", "95.5", "94.00 ± 3.00", "3", "-1.50"],
    ]
    assert texts(difference_table(made)) == [
        ["row", "b − a", "+0.50", "+2.00 ± 2.48", "3", "too small to tell"]
    ]


def test_the_page_has_heading_conditions_tables_and_command() -> None:
    made = replace(outcome(A, B), command="sampa reproduce an-id", notes="Said by hand.\n")
    text = outcome_page(made)
    for part in ("# an-id: a title", "reduced to two CPU cores. some data.", "`tab:some`"):
        assert part in text
    assert "| row | a | 95.00 ± 0.10 | 92.00 ± 2.00 | 3 | -3.00 |" in text
    assert "\nSaid by hand.\n" in text
    assert "    sampa reproduce an-id" in text
