"""Means, deviations and paired differences, against numbers computed by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from rich.console import Console

from sampa.lab.training.tables import (
    Grid,
    comparison,
    headline,
    paired_difference,
    read_grid,
    spread,
)
from tests.lab.training.runs import tiny_run

GRID: Grid = {
    "sgd": {0: {"accuracy": 90.0, "seconds": 10.0}, 1: {"accuracy": 94.0, "seconds": 20.0}},
    "sampa": {
        0: {"accuracy": 93.0, "seconds": 30.0},
        1: {"accuracy": 95.0, "seconds": 30.0},
        2: {"accuracy": 97.0, "seconds": 30.0},
    },
}


def test_the_deviation_is_that_of_a_sample() -> None:
    values = spread([2.0, 4.0, 4.0, 6.0])
    assert (values.n, values.mean) == (4, 4.0)
    assert values.std == pytest.approx(math.sqrt(8 / 3))  # (4 + 0 + 0 + 4) / (4 - 1)
    assert values.standard_error == pytest.approx(math.sqrt(8 / 3) / 2)


def test_a_single_number_has_no_deviation() -> None:
    assert math.isnan(spread([3.0]).std)
    assert str(spread([3.0])) == "3.00"


def test_a_spread_is_written_as_mean_and_deviation() -> None:
    assert str(spread([90.0, 94.0])) == "92.00 ± 2.83"


@pytest.mark.parametrize(
    ("values", "is_sure"),
    [
        ([1.0], False),  # one seed
        ([1.0, 1.0], True),
        ([0.0, 0.0], False),  # no error, but nothing to be sure of
        ([-1.0, 1.0], False),
        ([1.0, 3.0], True),  # 2 ± 1: two standard errors
        ([1.0, 3.1], False),
    ],
)
def test_a_mean_counts_from_two_standard_errors_on(values: list[float], is_sure: bool) -> None:
    assert spread(values).is_sure is is_sure


def test_a_difference_is_paired_by_seed() -> None:
    difference = paired_difference(GRID, "sampa", "sgd", "accuracy")
    assert difference is not None
    assert (difference.n, difference.mean) == (2, 2.0)  # 3 and 1, on the seeds that both have
    assert difference.standard_error == pytest.approx(1.0)  # √2 / √2


def test_a_method_is_not_compared_with_itself() -> None:
    assert paired_difference(GRID, "sgd", "sgd", "accuracy") is None


def test_methods_without_a_common_seed_are_not_compared() -> None:
    grid = {"sgd": {0: GRID["sgd"][0]}, "sampa": {2: GRID["sampa"][2]}}
    assert paired_difference(grid, "sampa", "sgd", "accuracy") is None


def test_the_table_shows_each_method_and_its_difference_to_the_first() -> None:
    console = Console(width=120)
    with console.capture() as captured:
        console.print(comparison(tiny_run(), GRID))
    lines = [" ".join(line.split()) for line in captured.get().splitlines()]
    assert "sgd 2 92.00 ± 2.83 15" in lines
    assert "sampa 3 95.00 ± 2.00 +2.00 ± 1.00 30" in lines


def test_a_difference_of_one_seed_has_no_error() -> None:
    grid = {method: {0: rows[0]} for method, rows in GRID.items()}
    console = Console(width=120)
    with console.capture() as captured:
        console.print(comparison(tiny_run(), grid))
    assert "+3.00 " in captured.get()


def test_the_headline_is_the_first_metric() -> None:
    assert headline({"sgd": {0: {"matthews": 50.0, "accuracy": 80.0}}}) == "matthews"


def test_results_that_are_there_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "sam" / "seed-1"
    folder.mkdir(parents=True)
    result = {"test": {"accuracy": 91.0}, "seconds": 5.0}
    (folder / "result.json").write_text(json.dumps(result))
    assert read_grid(tmp_path, ["sgd", "sam"], [0, 1]) == {
        "sam": {1: {"accuracy": 91.0, "seconds": 5.0}}
    }
