"""Captions: what a curve is of, where methods do not evaluate the same thing."""

from __future__ import annotations

from pathlib import Path

import pytest

from sampa.lab.report.recipe import curves, result_table
from sampa.lab.training.run import DataSpec
from tests.lab.report.folders import only_recipe, write_grid

SCORES = {"sgd": (90.0,), "sam": (91.0,), "sampa-0": (92.0,), "sam-db": (90.0,), "own": (9.0,)}


def notes(root: Path, **changes: object) -> dict[str, str]:
    recipe = only_recipe(write_grid(root, SCORES, rhos={"sam": 0.1}, **changes))
    return {chart.title: chart.note for chart in curves(recipe)}


def test_gaps_name_rho_clean_point_and_batch_of_each_method(tmp_path: Path) -> None:
    """sgd has no gap; of a method that the catalog does not have, nothing is claimed."""
    assert notes(tmp_path)["Sharpness gap"] == (
        "Loss at the perturbed point minus that at the clean point, last step of each epoch. "
        "sam (ρ = 0.1): x_t, incoming batch; "
        "sampa-0 (ρ = 0.05): y_t, the lookahead of the step before, held batch; "
        "sam-db (ρ = 0.05): x_{t−1}, held batch; own: a method that is not in the catalog."
    )


def test_losses_name_the_point_and_cosines_the_batches(tmp_path: Path) -> None:
    found = notes(tmp_path)
    assert "sgd, sam (ρ = 0.1), sam-db (ρ = 0.05): x_t;" in found["Training loss"]
    assert "sampa-0 (ρ = 0.05): the lookahead y_{t+1};" in found["Training loss"]
    assert "sam (ρ = 0.1): both on the incoming batch;" in found["Cosine of the gradients"]


def test_validation_with_noisy_labels_is_marked(tmp_path: Path) -> None:
    assert "Validation accuracy" in notes(tmp_path / "clean")
    noisy = DataSpec("digits", label_noise=0.4)
    title, note = next(iter(notes(tmp_path / "noisy", data=noisy).items()))
    assert title == "Validation accuracy, noisy labels"
    assert note.endswith("40 % of the validation labels are wrong, as in training.")
    table = result_table(only_recipe(tmp_path / "noisy"))
    assert "best on validation (noisy labels)" in table.notes[0]
    assert "noisy" not in result_table(only_recipe(tmp_path / "clean")).notes[0]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (DataSpec("cifar10"), ""),
        (DataSpec("cifar10", human_labels="clean"), ""),
        (DataSpec("cifar10", label_noise=0.4, validation=0.0), ""),  # test images stand in
        (DataSpec("cifar10", human_labels="worse"), "The labels are people's"),
    ],
)
def test_only_wrong_labels_that_are_held_back_count(data: DataSpec, words: str) -> None:
    assert data.noise_in_words().startswith(words)
    assert bool(data.noise_in_words()) == bool(words)
