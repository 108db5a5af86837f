"""Runs of a recipe: which belong together, in which order, and what they are called."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sampa.lab.report.collect import collect
from sampa.lab.report.groups import group
from sampa.lab.training.run import BaseSpec, Run
from sampa.lab.training.variants import used_hyperparameters
from tests.lab.report.folders import a_run, only_recipe, write_grid, write_run


def labels(root: Path) -> list[str]:
    return [variant.label for variant in only_recipe(root).variants]


def write_runs(root: Path, *runs: Run) -> Path:
    for i, run in enumerate(runs):
        write_run(root / str(i), run)
    return root


def test_methods_come_in_the_order_of_the_catalog_and_sampa_by_lambda(tmp_path: Path) -> None:
    names = ["looksam", "sampa-0.1", "sampa", "sam", "sgd", "sampa-0", "a-method-of-mine"]
    root = write_runs(tmp_path, *map(a_run, names))
    expected = ["sgd", "sam", "sampa-0", "sampa-0.1", "sampa", "looksam", "a-method-of-mine"]
    assert labels(root) == expected


def test_seeds_of_one_run_are_one_variant(tmp_path: Path) -> None:
    recipe = only_recipe(write_grid(tmp_path))
    assert [len(variant.runs) for variant in recipe.variants] == [3, 3, 3]
    assert [run.run.seed for run in recipe.variants[0].runs] == [0, 1, 2]


def test_recipes_are_told_apart_by_name(tmp_path: Path) -> None:
    write_runs(tmp_path, a_run(name="b"), a_run(name="a"))
    recipes, _ = group(collect([tmp_path]).runs)
    assert [recipe.name for recipe in recipes] == ["a", "b"]


def test_a_hyperparameter_is_named_where_it_tells_variants_apart(tmp_path: Path) -> None:
    sampa = a_run("sampa", rhos={"sampa": 0.3})
    root = write_runs(tmp_path, a_run("sam"), sampa, replace(sampa, lam=0.4))
    assert labels(root) == ["sam", "sampa, lam=0.2", "sampa, lam=0.4"]


def test_a_changed_setting_of_the_recipe_is_named_everywhere(tmp_path: Path) -> None:
    """Otherwise two methods trained differently would stand side by side as if they were not."""
    root = write_runs(tmp_path, a_run("sgd"), a_run("sam", base=BaseSpec(lr=0.2)))
    assert labels(root) == ["sgd, base.lr=0.1", "sam, base.lr=0.2"]


def test_more_epochs_for_the_base_alone_are_the_recipes_own(tmp_path: Path) -> None:
    root = write_runs(tmp_path, a_run("sgd", base_epochs=6), a_run("sam", base_epochs=6))
    assert labels(root) == ["sgd", "sam"]


def test_changed_epochs_are_named_as_they_were_trained(tmp_path: Path) -> None:
    root = write_runs(tmp_path, a_run("sgd", base_epochs=6), a_run("sam", epochs=2, base_epochs=2))
    assert labels(root) == ["sgd, epochs=6", "sam, epochs=2"]


def test_epochs_of_the_base_are_named_where_they_tell_variants_apart(tmp_path: Path) -> None:
    root = write_runs(tmp_path, a_run("sgd", base_epochs=6), a_run("sgd"), a_run("sam"))
    assert labels(root) == ["sgd, epochs=3", "sgd, epochs=6", "sam"]


def test_a_run_made_twice_counts_once(tmp_path: Path) -> None:
    """What another method's ρ would be, or how the recipe is described, makes it no other run."""
    root = write_runs(tmp_path / "runs", a_run(), a_run(about="other", rhos={"sam": 0.3}))
    (recipe,), (problem,) = group(collect([root]).runs)
    assert len(recipe.runs) == 1
    assert (problem.place, problem.reason) == ("runs/1", "the same run as runs/0")


def test_hyperparameters_are_defaults_then_recipe_then_command_line() -> None:
    assert used_hyperparameters(a_run("sampa")) == {"rho": 0.1, "lam": 0.2}
    assert used_hyperparameters(a_run("sampa-0.1", rhos={"sampa-0.1": 0.3})) == {
        "rho": 0.3,
        "lam": 0.1,
    }
    assert used_hyperparameters(a_run("sampa", rhos={"sampa": 0.3}, rho=0.4))["rho"] == 0.4


def test_hyperparameters_of_an_unknown_method_are_those_that_were_given() -> None:
    run = a_run("mine", rho=0.3, method_options={"k": 2})
    assert used_hyperparameters(run) == {"rho": 0.3, "k": 2}


def test_the_baseline_is_the_first_variant_unless_one_is_named(tmp_path: Path) -> None:
    root = write_grid(tmp_path)
    assert only_recipe(root).baseline.label == "sgd"
    assert only_recipe(root, "sam").baseline.label == "sam"


def test_an_unknown_baseline_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"baseline must be a known name.*did you mean 'sampa'"):
        only_recipe(write_grid(tmp_path), "sampaa")


def test_a_run_without_the_recipes_metric_is_left_out_with_the_reason(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "a", a_run())
    write_run(tmp_path / "runs" / "b", a_run(seed=1), test={"f1": 50.0})
    (recipe,), (problem,) = group(collect([tmp_path / "runs"]).runs)
    assert len(recipe.runs) == 1
    assert (problem.place, "no test accuracy" in problem.reason) == ("runs/b", True)


def test_published_values_of_another_metric_are_listed(tmp_path: Path) -> None:
    root = write_grid(tmp_path / "runs")
    (root / "paper.json").write_text('{"metric": "f1", "values": {"sam": 80.0}}')
    _, problems = group(collect([root]).runs)
    assert [p.reason for p in problems] == ["paper.json is about f1, which the runs do not report"]
