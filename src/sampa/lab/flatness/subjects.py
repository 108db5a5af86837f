"""The models whose flatness is measured: of finished runs, or one's own with their weights."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

import sampa
from sampa.lab.devices import find_device
from sampa.lab.models import MODELS, build
from sampa.lab.models.weights import read_weights
from sampa.lab.training.flatness import on_device, plain_batches
from sampa.lab.training.folder import RunFolder
from sampa.lab.training.recipes import find_recipe
from sampa.lab.training.run import Run
from sampa.lab.training.saved import load_saved
from sampa.lab.training.tasks import open_task
from sampa.messages import require


@dataclass(frozen=True)
class Opened:
    """A model with its data.

    Attributes:
        batches: The training samples that all measures see, as they are: without augmentation.
        loss_fn: The training loss.
        accuracy: Measures the test score.
    """

    model: nn.Module
    batches: list[Any]
    loss_fn: Callable[[Any], sampa.Loss]
    accuracy: Callable[[], float]


@dataclass(frozen=True)
class Subject:
    """A model to measure, which is loaded when it is needed.

    Attributes:
        name: Unique among those compared.
        recipe: What it was trained on.
        method: How; subjects of one recipe and method are seeds of one thing.
        seed: Of the run.
        run: Of its data and loss.
        folder: Of the run; None for a model of one's own.
        model: Its name, or package:Class.
        weights: The file of a model of one's own.
        which: The checkpoint of a run.
        state: Tells one version of the weights from another.
    """

    name: str
    recipe: str
    method: str
    seed: int
    run: Run
    folder: Path | None = None
    model: str = ""
    weights: Path | None = None
    which: str | None = None
    state: str = ""

    def as_json(self) -> dict[str, Any]:
        """Without the places of this machine."""
        kept = ("name", "recipe", "method", "seed", "which", "state")
        return {name: getattr(self, name) for name in kept}

    def open(self, data_dir: Path | None, batch_size: int, count: int) -> Opened:
        """Load model and data."""
        if self.folder is not None:
            saved = load_saved(self.folder, which=self.which, data_dir=data_dir)
            task, model = saved.task, saved.model
        else:
            task = open_task(self.run, data_dir)
            assert self.weights is not None
            model = own_model(self.model, self.weights, task.model_options())
        device = find_device()
        model.to(device).eval()
        taken = [on_device(b, device) for b in plain_batches(task, batch_size, count)]
        return Opened(
            model,
            taken,
            lambda batch: task.loss(model, batch),
            lambda: task.evaluate(model, "test")[task.metric],
        )


def of_run(folder: Path, which: str | None) -> Subject:
    """The model of a finished run.

    Raises:
        ValueError: If it is not finished.
    """
    found = RunFolder(folder)
    run = found.run()
    require(str(folder), "an unfinished run", found.result() is not None, "a finished run")
    name = f"{run.name} {run.method} seed {run.seed}"
    owner = found.owner().id
    return Subject(name, run.name, run.method, run.seed, run, folder, which=which, state=owner)


def of_weights(model: str, weights: Path, recipe: str) -> Subject:
    """A model of one's own, on the data of a recipe."""
    stat = weights.stat()
    state = f"{weights.name} {stat.st_size}"
    run = find_recipe(recipe)
    name = f"{model.rpartition(':')[2]} {weights.stem}"
    return Subject(name, recipe, name, 0, run, None, model, weights, state=state)


def own_model(name: str, weights: Path, options: dict[str, Any]) -> nn.Module:
    """A network of ours by name, or package:Class, with the weights of a file."""
    package, _, attribute = name.partition(":")
    if not attribute:
        require("--model", name, name in MODELS, "a network's name or package:Class")
        return build(name, path=weights, **options)
    kind: Any = getattr(importlib.import_module(package), attribute, None)
    require("--model", name, callable(kind), "package:Class, with a class in that package")
    known = inspect.signature(kind).parameters
    model: nn.Module = kind(**{k: v for k, v in options.items() if k in known})
    model.load_state_dict(read_weights(weights))
    return model
