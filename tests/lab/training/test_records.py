"""Results that are kept, with their conditions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sampa.lab.commands.compare import without_paths
from sampa.lab.conditions import Conditions
from sampa.lab.training.folder import RunFolder
from sampa.lab.training.recipes import find_recipe
from sampa.lab.training.records import read_results, write_record

SCORES = {"sgd": (90.0, 92.0), "sam": (91.0, 95.0)}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    run = find_recipe("digits-cpu")
    for method, scores in SCORES.items():
        for seed, score in enumerate(scores):
            folder = RunFolder(tmp_path / method / f"seed-{seed}")
            folder.path.mkdir(parents=True)
            changed = run.changed(method=method, seed=seed)
            folder.write(
                "run.json", {"run": changed.as_json(), "conditions": Conditions.now().values}
            )
            folder.write("result.json", {"test": {"accuracy": score}, "seconds": 1.0})
    return tmp_path


def write(runs: Path) -> Path:
    grid = read_results(runs, list(SCORES), [0, 1])
    write_record(runs / "kept", find_recipe("digits-cpu"), runs, grid, ["sampa", "compare"])
    return runs / "kept"


def test_summary_has_mean_deviation_and_the_difference_paired_by_seed(runs: Path) -> None:
    summary = json.loads((write(runs) / "results.json").read_text())["summary"]
    assert summary["sgd"]["mean"] == 91.0
    assert summary["sgd"]["std"] == pytest.approx(2**0.5)
    assert summary["sgd"]["difference"] is None
    difference = summary["sam"]["difference"]
    assert (difference["to"], difference["n"], difference["mean"]) == ("sgd", 2, 2.0)
    assert difference["standard_error"] == pytest.approx(1.0)  # of +1 and +3


def test_every_run_is_kept_with_its_settings_and_conditions(runs: Path) -> None:
    kept = json.loads((write(runs) / "results.json").read_text())["runs"]
    assert [(run["method"], run["seed"]) for run in kept] == [
        ("sgd", 0),
        ("sgd", 1),
        ("sam", 0),
        ("sam", 1),
    ]
    assert all(run["run"]["method"] == run["method"] for run in kept)
    assert all(run["conditions"]["versions"]["torch"] for run in kept)


def test_page_has_the_table_the_command_and_the_conditions(runs: Path) -> None:
    page = (write(runs) / "README.md").read_text()
    assert "| sam | 2 | 93.00 ± 2.83 | +2.00 ± 12.71 | 1.0 |" in page
    assert "    sampa compare" in page
    assert "- commit: " in page
    assert "- seeds: 0, 1" in page


def test_command_is_kept_without_the_paths_of_this_machine() -> None:
    given = ["compare", "digits-cpu", "--out", "/somewhere", "--data-dir=/data", "--seeds", "2"]
    assert without_paths(given) == ["compare", "digits-cpu", "--seeds", "2"]
