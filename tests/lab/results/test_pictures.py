"""Pictures that any table can be drawn as."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sampa.lab.reproduce.catalog import EXPERIMENTS
from sampa.lab.reproduce.records import main
from sampa.lab.reproduce.request import Request
from sampa.lab.results.charts import Chart, Line
from sampa.lab.results.outcome import Entry, Outcome
from sampa.lab.results.paper import Value
from sampa.lab.results.pictures import all_charts, lines_over

A = Entry("row", "a", {0: 90.0, 1: 92.0, 2: 94.0}, Value(95.0))
B = Entry("row", "b", {0: 91.0, 1: 94.0, 2: 97.0}, Value(95.5))


def outcome(*entries: Entry) -> Outcome:
    pairs = (("b", "a"),)
    return Outcome("an-id", "a title", "cpu", "data", "tab:some", entries=entries, pairs=pairs)


def test_a_difference_is_drawn_with_its_interval_and_the_papers() -> None:
    """1, 2, 3: mean 2, standard error 1/√3, of which Student's t takes 4.30 at n = 3."""
    (chart,) = all_charts(outcome(A, B))
    (line,) = chart.lines
    assert (chart.name, chart.kind) == ("differences", "intervals")
    assert line.y == pytest.approx([2.0, 0.5])
    assert [*line.low, *line.high] == pytest.approx([2 - 2.484, 2 + 2.484], abs=1e-3)


def test_labels_leave_out_what_is_the_same_everywhere() -> None:
    other = [replace(entry, row="other") for entry in (A, B)]
    (same_pair,) = all_charts(outcome(A, B, *other))
    assert [line.label for line in same_pair.lines] == ["row", "other"]
    assert same_pair.x_label.startswith("b − a,")
    both = replace(outcome(A, B, *other), pairs=(("b", "a"), ("a", "b")))
    lines = all_charts(both)[0].lines
    assert [(line.group, line.label) for line in lines[:2]] == [("row", "b − a"), ("row", "a − b")]


def test_differences_that_the_paper_does_not_print_are_no_picture() -> None:
    chart = Chart("c", "C", "x", "y", [Line("l", [1.0], [2.0])])
    plain = outcome(replace(A, paper=None), replace(B, paper=None))
    assert all_charts(replace(plain, charts=(chart,))) == (chart,)


def test_a_table_of_ratios_is_drawn_as_bars_beside_the_papers() -> None:
    (chart,) = all_charts(replace(outcome(replace(A, kind="median")), pairs=()))
    assert (chart.name, chart.kind) == ("values", "bars")
    assert chart.lines[0].y == [92.0, 95.0]
    assert "the paper" in chart.note


@pytest.fixture(scope="module")
def toy() -> Outcome:
    return EXPERIMENTS["fig-toy"].outcome(Request("smoke", Path(), seeds=2))


def test_records_are_drawn_again_from_their_numbers(tmp_path: Path, toy: Outcome) -> None:
    folder = tmp_path / "fig-toy"
    folder.mkdir()
    (folder / "results.json").write_text(json.dumps(toy.as_json()), encoding="utf-8")
    (tmp_path / "results.json").write_text("{}", encoding="utf-8")  # of another command
    assert main(tmp_path) == 0
    names = {file.name for file in folder.iterdir()}
    assert names == {"README.md", "results.json", "fig-toy.svg", "fig-toy.png"}


def test_only_what_depends_on_the_seed_has_a_band(toy: Outcome) -> None:
    assert {line.label for line in toy.charts[0].lines if line.low} == {"RandSAM"}


def test_rows_or_columns_that_are_numbers_are_drawn_as_lines() -> None:
    rows = (replace(A, row="20 %"), replace(A, row="40 %"), replace(B, row="20 %"), A)
    lines = lines_over(outcome(*rows), {"20 %": 20.0, "40 %": 40.0})
    assert [(line.label, line.x) for line in lines] == [("a", [20.0, 40.0]), ("b", [20.0])]
    assert (lines[1].y, lines[1].low, lines[1].high) == ([94.0], [91.0], [97.0])
    columns = lines_over(outcome(A, B), {"a": 0.0, "b": 0.5})
    assert [(line.label, line.x) for line in columns] == [("row", [0.0, 0.5])]
