"""Choosing from a grid: every combination, what diverged, equals, and edges."""

from __future__ import annotations

import pytest

from sampa.lab.results.outcome import RunResult
from sampa.lab.results.sweep import Point, Tried, at_edge, best_of, points_of, sweep_table


def tried(point: Point, *scores: float, diverged: tuple[int, ...] = ()) -> Tried:
    results = {
        seed: RunResult(test={"accuracy": 1.0}, best_validation=score, seconds=1.0)
        for seed, score in enumerate(scores)
    }
    return Tried(point, results, diverged)


def test_a_grid_has_every_combination_once() -> None:
    assert points_of({"rho": [0.1, 0.2, 0.1], "lam": [0.0, 0.5]}) == [
        {"rho": 0.1, "lam": 0.0},
        {"rho": 0.1, "lam": 0.5},
        {"rho": 0.2, "lam": 0.0},
        {"rho": 0.2, "lam": 0.5},
    ]
    assert points_of({"rho": [0.1], "lam": []}) == [{"rho": 0.1}]


def test_the_highest_mean_is_chosen_and_the_first_of_equals() -> None:
    a, b, c = tried({"rho": 1}, 90, 94), tried({"rho": 2}, 96, 90), tried({"rho": 3}, 93, 93)
    assert best_of([a, b, c]) is b
    assert best_of([a, c, b]) is c


def test_what_diverged_on_one_seed_is_worse_than_anything() -> None:
    wild, poor = tried({"rho": 1}, 99.0, diverged=(1,)), tried({"rho": 2}, 10.0, 11.0)
    assert best_of([wild, poor]) is poor
    assert best_of([wild]) is None


def test_a_score_that_is_no_number_is_worst() -> None:
    assert best_of([tried({"rho": 1}, float("nan"))]) is None


@pytest.mark.parametrize(
    ("best", "said"),
    [
        ({"rho": 0.1, "lam": 0.2}, []),
        ({"rho": 0.2, "lam": 0.2}, ["the best rho is the largest that was tried: look further, "]),
        ({"rho": 0.05, "lam": 0.2}, ["the best rho is the smallest that was tried: look further"]),
        ({"rho": 0.1, "lam": 0.0}, []),  # there is no λ below
        ({"rho": 0.1, "lam": 0.4}, ["the best lam is the largest"]),
    ],
)
def test_the_edge_of_the_grid_is_told(best: Point, said: list[str]) -> None:
    grid = {"rho": [0.05, 0.1, 0.2], "lam": [0.4, 0.0, 0.2]}
    found = at_edge(best, grid)
    assert len(found) == len(said)
    assert all(f.startswith(s) for f, s in zip(found, said, strict=True))


def test_what_to_try_next_begins_at_the_edge_and_stays_possible() -> None:
    (sentence,) = at_edge({"rho": 0.2}, {"rho": [0.1, 0.2]})
    assert sentence.endswith("--rho 0.2,0.4,0.8")
    (sentence,) = at_edge({"rho": 0.1}, {"rho": [0.1, 0.2]})
    assert sentence.endswith("--rho 0.025,0.05,0.1")
    (sentence,) = at_edge({"lam": 0.6}, {"lam": [0.1, 0.6]})
    assert sentence.endswith("--lam 0.6,1")
    assert at_edge({"lam": 1.0}, {"lam": [0.1, 1.0]}) == []
    assert at_edge({"rho": 0.1}, {"rho": [0.1]}) == []  # it was not asked for


def test_the_table_has_the_best_the_differences_and_what_diverged() -> None:
    points = [tried({"rho": 0.1}, 90.0, 91.0), tried({"rho": 0.2}, 92.0, 94.0)]
    points += [tried({"rho": 0.4}, 99.0, diverged=(1,)), tried({"rho": 0.8}, diverged=(0, 1))]
    table = sweep_table("t", "accuracy", [*points, tried({"rho": 1.6})], [])
    assert table.columns == ("rho", "n", "validation accuracy", "against best ± 95 %", "")
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["0.1", "2", "90.50 ± 0.71", "-2.50 ± 6.35", ""],
        ["0.2", "2", "93.00 ± 1.41", "–", "best"],
        ["0.4", "2", "diverged (1 of 2)", "–", ""],
        ["0.8", "2", "diverged", "–", ""],
        ["1.6", "0", "not done", "–", ""],
    ]
    assert "What diverged counts as worst." in " ".join(table.notes)
