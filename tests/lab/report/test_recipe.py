"""Sentences, tables and charts of a recipe, against numbers worked out by hand.

sgd 90 91 92, sam 91 93 92, sampa 92 93 94 on seeds 0 1 2. Differences to sgd: sam 1 2 0, mean 1,
deviation 1, standard error 1/√3 = 0.577, of which Student's t takes 4.30 at n = 3; sampa 2 2 2,
mean 2, standard error 0.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

from sampa.lab.report.curves import curves
from sampa.lab.report.groups import Recipe
from sampa.lab.report.recipe import (
    headline,
    paper_table,
    result_table,
    sweeps,
    time_chart,
)
from sampa.lab.results.charts import Line, chart_in_words
from sampa.lab.results.html import minus
from sampa.lab.results.table import ABSENT, Table
from tests.lab.report.folders import a_run, only_recipe, write_grid, write_run


def texts(table: Table) -> dict[str, list[str]]:
    return {row[0].text: [minus(cell.text) for cell in row[1:]] for row in table.rows}


def recipe_of(root: Path, **scores: Sequence[float]) -> Recipe:
    return only_recipe(write_grid(root, scores))


def test_results_are_mean_and_deviation_with_differences_paired_by_seed(tmp_path: Path) -> None:
    table = result_table(only_recipe(write_grid(tmp_path)))
    assert table.columns[2:4] == ("test accuracy", "against sgd ± 95 %")
    assert texts(table) == {
        "sgd": ["3", "91.00 ± 1.00", "–", "11.0", "1–3"],
        "sam": ["3", "92.00 ± 1.00", "+1.00 ± 2.48", "21.0", "1–3"],
        "sampa": ["3", "93.00 ± 1.00", "+2.00 ± 0.00", "11.0", "1–3"],
    }


def test_a_difference_whose_interval_reaches_0_is_marked(tmp_path: Path) -> None:
    table = result_table(only_recipe(write_grid(tmp_path)))
    differences = {row[0].text: row[3] for row in table.rows}
    marked = {name: cell.unsure for name, cell in differences.items() if cell != ABSENT}
    assert marked == {"sam": True, "sampa": False}
    assert table.has_unsure


def test_only_common_seeds_are_paired(tmp_path: Path) -> None:
    table = result_table(recipe_of(tmp_path, sgd=(90.0,), sam=(91.0, 50.0)))
    assert texts(table)["sam"][:3] == ["2", "70.50 ± 28.99", "+1.00"]


def test_a_run_that_never_came_to_an_epoch_has_no_best_one(tmp_path: Path) -> None:
    write_run(tmp_path / "run", a_run(), best_epoch=-1)
    assert result_table(only_recipe(tmp_path)).rows[0][-1] == ABSENT


def test_the_model_that_is_reported_is_named(tmp_path: Path) -> None:
    write_run(tmp_path / "run", a_run(select="last"))
    assert "the last epoch" in result_table(only_recipe(tmp_path)).notes[0]


# ---- the sentence ----------------------------------------------------------------------------


def test_a_clear_winner_is_said_with_its_difference(tmp_path: Path) -> None:
    assert headline(only_recipe(write_grid(tmp_path))) == (
        "Highest mean test accuracy: sampa, 93.00 ± 1.00 (n = 3). Against sgd, on the same 3 "
        "seeds: +2.00 ± 0.00 (95 % interval), which leaves 0 out."
    )


def test_too_few_seeds_are_said(tmp_path: Path) -> None:
    assert headline(recipe_of(tmp_path, sgd=(90.0, 91.0, 92.0), sam=(91.0, 93.0, 92.0))) == (
        "Highest mean test accuracy: sam, 92.00 ± 1.00 (n = 3). Against sgd, on the same 3 seeds: "
        "+1.00 ± 2.48 (95 % interval), which reaches 0: too few seeds to tell them apart."
    )


def test_one_seed_is_too_few(tmp_path: Path) -> None:
    assert headline(recipe_of(tmp_path, sgd=(90.0,), sam=(91.0,))) == (
        "Highest mean test accuracy: sam, 91.00 (n = 1). Against sgd, on the same seed: +1.00; "
        "one seed is too few to tell."
    )


def test_two_seeds_need_a_difference_of_many_errors(tmp_path: Path) -> None:
    """+2.0 and +2.5 are nine standard errors; with two seeds that is p = 0.07."""
    sentence = headline(recipe_of(tmp_path, sgd=(90.0, 91.0), sam=(92.0, 93.5)))
    assert "+2.25 ± 3.18 (95 % interval), which reaches 0" in sentence


def test_a_baseline_that_wins_is_compared_with_the_next(tmp_path: Path) -> None:
    assert headline(recipe_of(tmp_path, sgd=(95.0, 96.0), sam=(91.0, 92.0))) == (
        "Highest mean test accuracy: sgd, the baseline, 95.50 ± 0.71 (n = 2). Next is sam, on the "
        "same 2 seeds: −4.00 ± 0.00 (95 % interval), which leaves 0 out."
    )


def test_equal_results_are_no_difference(tmp_path: Path) -> None:
    sentence = headline(recipe_of(tmp_path, sgd=(90.0, 91.0), sam=(90.0, 91.0)))
    assert sentence.endswith("+0.00 ± 0.00 (95 % interval), no difference on any seed.")


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
    assert table.columns == ("method", "paper", "ours", "difference")
    assert texts(table) == {
        "sam": ["94.26 ± 0.70", "92.00 ± 1.00", "−2.26"],
        "sampa": ["92.50", "93.00 ± 1.00", "+0.50"],
    }
    assert table.notes[0].endswith("Source: Table 2.")


def test_the_paper_may_be_about_another_test_metric(tmp_path: Path) -> None:
    root = write_grid(tmp_path)
    (root / "paper.json").write_text('{"metric": "top5", "values": {"sam": 98.5}}')
    table = paper_table(only_recipe(root))
    assert table is not None
    assert texts(table) == {"sam": ["98.50", "99.00 ± 0.00", "+0.50"]}


def test_without_published_values_there_is_no_such_table(tmp_path: Path) -> None:
    assert paper_table(only_recipe(write_grid(tmp_path))) is None


# ---- charts ----------------------------------------------------------------------------------


def curve(root: Path, title: str) -> list[Line]:
    (chart,) = [chart for chart in curves(only_recipe(root)) if chart.title == title]
    return chart.lines


def test_a_band_is_the_mean_and_the_extremes_of_the_seeds(tmp_path: Path) -> None:
    """sgd's seeds end at 90, 91 and 92; validation is 3, 2 and 1 lower at epochs 1, 2, 3."""
    band = curve(write_grid(tmp_path), "Validation accuracy")[0]
    assert (band.label, band.x) == ("sgd", [1, 2, 3])
    assert band.y == [88, 89, 90]
    assert (band.low, band.high) == ([87, 88, 89], [89, 90, 91])


def test_variants_without_a_curve_have_no_band(tmp_path: Path) -> None:
    found = curve(write_grid(tmp_path), "Sharpness gap of the step")
    assert [line.label for line in found] == ["sam", "sampa"]


def test_an_epoch_counts_the_seeds_that_came_to_it(tmp_path: Path) -> None:
    write_run(tmp_path / "a", a_run(seed=0), 90.0)
    folder = write_run(tmp_path / "b", a_run(seed=1), 92.0)
    folder.append({"epoch": 3, "validation_accuracy": 80.0})
    (band,) = curve(tmp_path, "Validation accuracy")
    assert band.y == [88, 89, 90, 80]


def test_an_epoch_that_was_not_finite_is_a_gap(tmp_path: Path) -> None:
    write_run(tmp_path / "a", a_run(seed=0)).append({"epoch": 3, "train_loss": math.nan})
    write_run(tmp_path / "b", a_run(seed=1)).append({"epoch": 3, "train_loss": 1.0})
    (band,) = curve(tmp_path, "Training loss")
    assert all(math.isnan(values[3]) for values in (band.y, band.low, band.high))


def test_curves_are_told_in_words(tmp_path: Path) -> None:
    scores = {"sgd": (90.0,), "sam": (91.0,)}
    chart = curves(only_recipe(write_grid(tmp_path, scores)))[0]
    expected = "Mean over seeds, from first to last epoch. sgd: 87 to 89; sam: 88 to 90."
    assert chart_in_words(chart) == expected


def test_time_is_shown_for_every_run_and_told_as_means(tmp_path: Path) -> None:
    chart = time_chart(only_recipe(write_grid(tmp_path)), mixed=[])
    sam = chart.lines[1]
    assert (sam.x, sam.y) == ([20, 21, 22], [91, 93, 92])
    assert "sam: 92 at 21" in chart_in_words(chart)


def test_runs_that_differ_in_lambda_only_are_a_sweep(tmp_path: Path) -> None:
    rhos = {"sampa-0": 0.1, "sampa-0.1": 0.1, "sampa": 0.1}
    scores = {"sgd": (90.0, 91.0), "sampa-0": (92.0, 94.0), "sampa-0.1": (93.0,), "sampa": (95.0,)}
    (sweep,) = sweeps(only_recipe(write_grid(tmp_path, scores, rhos=rhos)))
    (line,) = sweep.lines
    assert (line.label, line.x, line.y) == ("sampa", [0, 0.1, 0.2], [93, 93, 95])
    assert line.high == [93 + math.sqrt(2), 93, 95]
    assert sweep.reference == 90.5


def test_lambda_may_be_given_by_option(tmp_path: Path) -> None:
    for lam in (0.2, 0.4):
        write_run(tmp_path / str(lam), a_run("sampa", lam=lam), 90 + lam)
    (sweep,) = sweeps(only_recipe(tmp_path))
    assert sweep.lines[0].x == [0.2, 0.4]
    assert sweep.reference is None  # the baseline is one of its points


def test_runs_that_differ_in_rho_too_are_no_sweep(tmp_path: Path) -> None:
    rhos = {"sampa-0": 0.1, "sampa": 0.2}
    scores = {"sampa-0": (92.0,), "sampa": (95.0,)}
    assert not sweeps(only_recipe(write_grid(tmp_path, scores, rhos=rhos)))
