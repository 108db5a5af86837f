"""The paper's values are the paper's, and belong to the experiments that name them."""

from __future__ import annotations

import statistics

import pytest

from sampa.lab.reproduce.catalog import EXPERIMENTS
from sampa.lab.reproduce.grids import EFFICIENT, FOUR, GLUE_ROWS, TWICE
from sampa.lab.reproduce.times import relative
from sampa.lab.results.outcome_tables import paper_cell
from sampa.lab.results.paper import Value, published

CIFAR = ("tab-cifar10", "tab-cifar100")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_has_what_the_paper_says_about_it(name: str) -> None:
    known = published(name)
    assert known.label
    assert known.values or known.claim


@pytest.mark.parametrize("name", CIFAR)
@pytest.mark.parametrize("column", [*FOUR, TWICE])
def test_the_printed_averages_are_those_of_the_printed_rows(name: str, column: str) -> None:
    """An error in one of the rows would show here.

    The paper rounds to two digits; SAMPa-0's printed average on CIFAR-10 is 0.02 above its rows'.
    """
    values = published(name).values
    rows = [columns[column].mean for row, columns in values.items() if row != "Average"]
    assert len(rows) == 5
    assert statistics.fmean(rows) == pytest.approx(values["Average"][column].mean, abs=0.021)


@pytest.mark.parametrize("column", ["AdamW", "SAM", "SAMPa-0", "SAMPa-0.1"])
def test_glues_printed_average_is_that_of_its_tasks(column: str) -> None:
    """Tasks with two metrics count with their mean, as GLUE does it."""
    known = published("tab-glue")
    tasks = [
        statistics.fmean(known.values[row][column].mean for row, _ in rows)
        for rows in GLUE_ROWS.values()
    ]
    assert statistics.fmean(tasks) == pytest.approx(known.values["GLUE"][column].mean, abs=0.06)


def test_the_same_result_is_printed_alike_in_several_tables() -> None:
    cifar = published("tab-cifar10").values
    for table in ("tab-optsam", "tab-sam-db", "tab-penalty"):
        for row, columns in published(table).values.items():
            for column in set(columns) & set(cifar.get(row, {})):
                assert columns[column].mean == cifar[row][column].mean, (table, row, column)
    noisy = published("tab-noise").values["80 %"]
    assert published("tab-penalty").value("ResNet-32 (80 % noisy label)", "SAM") == Value(
        noisy["SAM"].mean
    )


def test_time_and_accuracy_have_a_value_for_each_efficient_variant() -> None:
    values = published("tab-efficiency").values
    assert set(values["Accuracy"]) == set(values["Time/Epoch (s)"]) == set(EFFICIENT)


def test_the_papers_seconds_become_ratios() -> None:
    ratios = relative(published("tab-efficiency"), "Time/Epoch (s)", "SAM")
    assert ratios["SAM"].mean == 1
    assert ratios["SAMPa-0.2"].mean == pytest.approx(10.94 / 18.81, abs=5e-4)


def test_a_value_is_shown_as_it_is_printed() -> None:
    assert paper_cell(Value(94.26, 0.7)).text == "94.26 ± 0.70"
    assert paper_cell(Value(120.16)).text == "120.16"
    assert paper_cell(published("tab-glue").values["GLUE"]["SAMPa-0.1"]).text == "78.0"
    assert paper_cell(published("tab-incorporation").values["VaSSO"]["alone"]).text == "94.80"
    assert paper_cell(published("tab-memory").values["Memory (MiB)"]["SAM"]).text == "2290"
