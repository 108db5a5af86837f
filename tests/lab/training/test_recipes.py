"""Recipes have the paper's settings, line by line, and reduced editions say that they are."""

from __future__ import annotations

import pytest

from sampa.lab.models import MODELS
from sampa.lab.training.recipes import RECIPES, find_recipe
from sampa.lab.training.run import BaseSpec, Run, Schedule

PAPER_MODELS = ("resnet32", "resnet56", "vgg19-bn", "densenet121", "wrn-28-2", "wrn-28-10")
CIFAR = [f"cifar{classes}-{model}" for classes in (10, 100) for model in PAPER_MODELS]
NOISE = [f"cifar10-noise{percent}" for percent in (0, 20, 40, 60, 80)]
HUMAN = [f"cifar10n-{name}" for name in ("aggre", "worse", "random1", "random2", "random3")]
VIT = ["cifar10-vit-b-16", "cifar100-vit-b-16"]
GLUE_TASKS = ("cola", "sst-2", "mrpc", "sts-b", "qqp", "mnli", "qnli", "rte", "wnli")
GLUE = [f"glue-{task}" for task in GLUE_TASKS]
PAPER = [*CIFAR, *NOISE, *HUMAN, *VIT, *GLUE, "imagenet-resnet50"]
REDUCED = [name for name in RECIPES if name.endswith("-cpu")]


def test_every_experiment_of_the_paper_has_its_recipe() -> None:
    assert set(PAPER) == set(RECIPES) - set(REDUCED) - {"images", "text"}  # for the user's own


@pytest.mark.parametrize("name", RECIPES)
def test_every_name_makes_a_run_of_that_name(name: str) -> None:
    run = find_recipe(name)
    assert isinstance(run, Run)
    assert run.name == name
    assert run.model.name in MODELS


@pytest.mark.parametrize("name", CIFAR + NOISE + HUMAN)
def test_cifar_settings(name: str) -> None:
    run = find_recipe(name)
    assert run.base == BaseSpec("sgd", lr=0.1, momentum=0.9, weight_decay=5e-4)
    assert run.schedule == Schedule("cosine", warmup=0.0)
    assert (run.epochs, run.base_epochs) == (200, 400)
    assert (run.batch_size, run.label_smoothing) == (128, 0.1)
    assert (run.data.augment, run.data.validation, run.select) == (True, 0.1, "best")
    assert (run.data.size, run.data.subset, run.data.upscale) == (None, None, None)
    assert run.max_norm is None


@pytest.mark.parametrize("name", CIFAR)
def test_cifar_names_data_and_model(name: str) -> None:
    run = find_recipe(name)
    assert (run.data.name, run.model.name) == tuple(name.split("-", 1))
    assert (run.data.label_noise, run.data.human_labels) == (0.0, None)


@pytest.mark.parametrize(("classes", "rho"), [(10, 0.05), (100, 0.1)])
@pytest.mark.parametrize("model", ["resnet56", "vit-b-16"])
def test_sampa_has_twice_the_rho_of_sam_and_sampa_0_the_same(
    classes: int, rho: float, model: str
) -> None:
    rhos = find_recipe(f"cifar{classes}-{model}").rhos
    assert rhos == {"sam": rho, "sampa-0": rho, "sampa": 2 * rho, "sampa-0.2": 2 * rho}


@pytest.mark.parametrize("percent", [0, 20, 40, 60, 80])
def test_label_noise_settings(percent: int) -> None:
    run = find_recipe(f"cifar10-noise{percent}")
    assert (run.data.name, run.model.name) == ("cifar10", "resnet32")
    assert run.data.label_noise == percent / 100
    assert set(run.rhos) == {"sam", "sampa-0", "sampa", "sampa-0.2"}
    assert set(run.rhos.values()) == {0.01 if percent == 80 else 0.1}


@pytest.mark.parametrize("name", HUMAN)
def test_human_labels_are_those_of_the_name(name: str) -> None:
    run = find_recipe(name)
    assert (run.data.human_labels, run.data.label_noise) == (name.removeprefix("cifar10n-"), 0.0)
    assert run.model.name == "resnet32"


def test_imagenet_settings() -> None:
    run = find_recipe("imagenet-resnet50")
    assert run.base == BaseSpec("sgd", lr=0.1, momentum=0.9, weight_decay=1e-4)
    assert (run.epochs, run.batch_size, run.label_smoothing) == (90, 256, 0.1)
    assert run.schedule == Schedule("cosine")
    assert run.rhos == {"sam": 0.05, "sampa-0": 0.05, "sampa": 0.1, "sampa-0.2": 0.1}


@pytest.mark.parametrize("name", VIT)
def test_vit_settings(name: str) -> None:
    run = find_recipe(name)
    assert run.base == BaseSpec("adamw", lr=1e-4, weight_decay=5e-4)
    assert (run.epochs, run.max_norm, run.data.upscale) == (10, 1.0, 224)
    # "Other parameters remain consistent" with those of CIFAR.
    assert (run.batch_size, run.label_smoothing, run.schedule.kind) == (128, 0.1, "cosine")
    assert (run.data.augment, run.data.validation, run.select) == (True, 0.1, "best")


@pytest.mark.parametrize("task", GLUE_TASKS)
def test_glue_settings(task: str) -> None:
    run = find_recipe(f"glue-{task}")
    rho = {"cola": 0.01, "rte": 0.005, "sts-b": 0.005}.get(task, 0.05)
    assert (run.data.name, run.model.name) == (f"glue/{task}", "bert-base")
    assert (run.base.kind, run.base.lr, run.schedule) == ("adamw", 2e-5, Schedule("linear"))
    assert (run.batch_size, run.max_norm) == (32, 1.0)
    assert run.epochs == (5 if task in ("mrpc", "wnli") else 3)
    assert run.method == "sampa-0.1"
    assert {run.rhos[method] for method in ("sam", "sampa-0", "sampa-0.1")} == {rho}


@pytest.mark.parametrize("name", REDUCED)
def test_a_reduced_edition_says_so(name: str) -> None:
    assert find_recipe(name).about.startswith("reduced")


@pytest.mark.parametrize("name", PAPER)
def test_an_edition_of_the_paper_is_not_called_reduced(name: str) -> None:
    assert "reduced" not in find_recipe(name).about


def test_an_unknown_recipe_is_refused_with_the_nearest_names() -> None:
    with pytest.raises(ValueError, match="did you mean 'cifar10-resnet56' or"):
        find_recipe("cifar10-resnet57")
