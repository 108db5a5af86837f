"""Captions: what a curve is of, where methods do not evaluate the same thing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sampa.lab.report.curves import curves
from sampa.lab.report.recipe import result_table
from sampa.lab.training.run import DataSpec
from tests.lab.report.folders import only_recipe, write_grid

SCORES = {"sgd": (90.0,), "sam": (91.0,), "sampa-0": (92.0,), "sam-db": (90.0,), "own": (9.0,)}


def notes(root: Path, **changes: object) -> dict[str, str]:
    recipe = only_recipe(write_grid(root, SCORES, rhos={"sam": 0.1}, **changes))
    return {chart.title: chart.note for chart in curves(recipe)}


def test_gaps_name_rho_clean_point_and_batch_of_each_method(tmp_path: Path) -> None:
    """sgd has no gap; of a method that the catalog does not have, nothing is claimed."""
    assert notes(tmp_path)["Sharpness gap of the step"] == (
        "Loss at the perturbed point minus that at the clean point, last step of each epoch. "
        "Compare a method with itself alone: ρ and the clean point are its own. `sampa train "
        "--flatness-every` measures what can be compared. "
        "sam (ρ = 0.1): x_t, incoming batch; "
        "sampa-0 (ρ = 0.05): y_t, the lookahead of the step before, held batch; "
        "sam-db (ρ = 0.05): x_{t−1}, held batch; own: a method that is not in the catalog."
    )


def test_losses_name_the_point_and_cosines_the_batches(tmp_path: Path) -> None:
    found = notes(tmp_path)
    assert "sgd, sam (ρ = 0.1), sam-db (ρ = 0.05): x_t;" in found["Training loss"]
    assert "sampa-0 (ρ = 0.05): the lookahead y_{t+1};" in found["Training loss"]
    one, two = (found[f"Cosine of the gradients, {kind}"] for kind in ("one batch", "two batches"))
    assert "sam (ρ = 0.1): both on the incoming batch." in one
    assert "sampa-0 (ρ = 0.05): at x̃_t on the held batch, at y_{t+1} on the incoming one;" in two


def test_cosines_of_one_batch_and_of_two_are_never_in_one_picture(tmp_path: Path) -> None:
    recipe = only_recipe(write_grid(tmp_path, SCORES))
    found = {c.title: [line.label for line in c.lines] for c in curves(recipe)}
    assert {title: labels for title, labels in found.items() if "Cosine" in title} == {
        "Cosine of the gradients, one batch": ["sam"],
        "Cosine of the gradients, two batches": ["sampa-0", "sam-db"],
        "Cosine of the gradients, unknown batches": ["own"],
    }


def test_what_can_be_compared_takes_the_place_of_the_gap(tmp_path: Path) -> None:
    root = write_grid(tmp_path, {"sgd": (90.0,), "sam": (91.0,)})
    for file in root.rglob("metrics.jsonl"):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        told = [{**line, "flatness_sharpness": 0.1 * i} for i, line in enumerate(lines)]
        file.write_text("".join(f"{json.dumps(line)}\n" for line in told))
    found = {chart.title: chart for chart in curves(only_recipe(root))}
    assert [line.label for line in found["Sharpness at the weights"].lines] == ["sgd", "sam"]
    assert "Sharpness gap of the step" not in found


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
