"""Sentences and tables, against numbers worked out by hand.

sgd 90 91 92, sam 91 93 92, sampa 92 93 94 on seeds 0 1 2. Differences to sgd: sam 1 2 0, mean 1,
deviation 1, standard error 1/√3 = 0.577; sampa 2 2 2, mean 2, standard error 0.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from sampa.lab.report.groups import Recipe
from sampa.lab.report.summarize import Cell, Table, duration, headline, paper_table, result_table
from tests.lab.report.folders import a_run, only_recipe, write_grid, write_run


def texts(table: Table) -> dict[str, list[str]]:
    return {row.variant.label: [cell.text for cell in row.cells] for row in table.rows}


def recipe_of(root: Path, **scores: Sequence[float]) -> Recipe:
    return only_recipe(write_grid(root, scores))


def test_results_are_mean_and_deviation_with_differences_paired_by_seed(tmp_path: Path) -> None:
    table = result_table(only_recipe(write_grid(tmp_path)))
    assert table.columns[1:3] == ("test accuracy, mean ± std", "against sgd, ± s.e.")
    assert texts(table) == {
        "sgd": ["3", "91.00 ± 1.00", "–", "11.0", "1–3"],
        "sam": ["3", "92.00 ± 1.00", "+1.00 ± 0.58", "21.0", "1–3"],
        "sampa": ["3", "93.00 ± 1.00", "+2.00 ± 0.00", "11.0", "1–3"],
    }


def test_a_difference_below_two_standard_errors_is_marked(tmp_path: Path) -> None:
    table = result_table(only_recipe(write_grid(tmp_path)))
    assert {row.variant.label: row.cells[2].unsure for row in table.rows} == {
        "sgd": False,
        "sam": True,
        "sampa": False,
    }
    assert table.has_unsure


def test_only_common_seeds_are_paired(tmp_path: Path) -> None:
    table = result_table(recipe_of(tmp_path, sgd=(90.0,), sam=(91.0, 50.0)))
    assert texts(table)["sam"][:3] == ["2", "70.50 ± 28.99", "+1.00"]


def test_a_run_that_never_came_to_an_epoch_has_no_best_one(tmp_path: Path) -> None:
    write_run(tmp_path / "run", a_run(), best_epoch=-1)
    row = result_table(only_recipe(tmp_path)).rows[0]
    assert row.cells[-1] == Cell("–", None)


def test_the_model_that_is_reported_is_named(tmp_path: Path) -> None:
    write_run(tmp_path / "run", a_run(select="last"))
    assert "the last epoch" in result_table(only_recipe(tmp_path)).caption


# ---- the sentence ----------------------------------------------------------------------------


def test_a_clear_winner_is_said_with_its_difference(tmp_path: Path) -> None:
    assert headline(only_recipe(write_grid(tmp_path))) == (
        "Highest mean test accuracy: sampa, 93.00 ± 1.00 (n = 3). Against sgd, on the same 3 "
        "seeds: +2.00 ± 0.00 (s.e.), more than two standard errors."
    )


def test_too_few_seeds_are_said(tmp_path: Path) -> None:
    assert headline(recipe_of(tmp_path, sgd=(90.0, 91.0, 92.0), sam=(91.0, 93.0, 92.0))) == (
        "Highest mean test accuracy: sam, 92.00 ± 1.00 (n = 3). Against sgd, on the same 3 seeds: "
        "+1.00 ± 0.58 (s.e.), under two standard errors: too few seeds to tell them apart."
    )


def test_one_seed_is_too_few(tmp_path: Path) -> None:
    assert headline(recipe_of(tmp_path, sgd=(90.0,), sam=(91.0,))) == (
        "Highest mean test accuracy: sam, 91.00 (n = 1). Against sgd, on the same seed: +1.00; "
        "one seed is too few to tell."
    )


def test_two_seeds_give_a_rough_error(tmp_path: Path) -> None:
    sentence = headline(recipe_of(tmp_path, sgd=(90.0, 91.0), sam=(92.0, 93.5)))
    assert sentence.endswith(
        "+2.25 ± 0.25 (s.e.), more than two standard errors; two seeds give only a rough error."
    )


def test_a_baseline_that_wins_is_compared_with_the_next(tmp_path: Path) -> None:
    assert headline(recipe_of(tmp_path, sgd=(95.0, 96.0), sam=(91.0, 92.0))) == (
        "Highest mean test accuracy: sgd, the baseline, 95.50 ± 0.71 (n = 2). Next is sam, on the "
        "same 2 seeds: −4.00 ± 0.00 (s.e.), more than two standard errors; two seeds give only a "
        "rough error."
    )


def test_equal_results_are_no_difference(tmp_path: Path) -> None:
    sentence = headline(recipe_of(tmp_path, sgd=(90.0, 91.0), sam=(90.0, 91.0)))
    assert sentence.endswith("+0.00 ± 0.00 (s.e.), no difference on any seed.")


def test_no_common_seed_means_no_difference_to_give(tmp_path: Path) -> None:
    write_run(tmp_path / "a", a_run("sgd", 0), 90.0)
    write_run(tmp_path / "b", a_run("sam", 1), 91.0)
    assert headline(only_recipe(tmp_path)).endswith("to give: no seed in common.")


def test_a_single_variant_is_compared_with_nothing(tmp_path: Path) -> None:
    sentence = headline(recipe_of(tmp_path, sgd=(90.0, 91.0)))
    assert sentence == "Test accuracy of sgd: 90.50 ± 0.71 (n = 2). Nothing to compare it with."


# ---- the paper -------------------------------------------------------------------------------


def test_the_papers_values_stand_beside_ours(tmp_path: Path) -> None:
    root = write_grid(tmp_path)
    paper = {"metric": "accuracy", "values": {"sam": [94.26, 0.7], "sampa": 92.5, "gsam": 1.0}}
    (root / "paper.json").write_text(json.dumps({**paper, "source": "Table 2"}))
    table = paper_table(only_recipe(root))
    assert table is not None
    assert table.columns == ("paper", "ours", "difference")
    assert texts(table) == {
        "sam": ["94.26 ± 0.70", "92.00 ± 1.00", "−2.26"],
        "sampa": ["92.50", "93.00 ± 1.00", "+0.50"],
    }
    assert table.caption.endswith("Source: Table 2.")


def test_the_paper_may_be_about_another_test_metric(tmp_path: Path) -> None:
    root = write_grid(tmp_path)
    (root / "paper.json").write_text('{"metric": "top5", "values": {"sam": 98.5}}')
    table = paper_table(only_recipe(root))
    assert table is not None
    assert texts(table) == {"sam": ["98.50", "99.00 ± 0.00", "+0.50"]}


def test_without_published_values_there_is_no_such_table(tmp_path: Path) -> None:
    assert paper_table(only_recipe(write_grid(tmp_path))) is None


def test_seconds_have_a_decimal_while_it_matters() -> None:
    assert [duration(s) for s in (1.234, 99.94, 12345.6, float("nan"))] == [
        "1.2",
        "99.9",
        "12,346",
        "–",
    ]
