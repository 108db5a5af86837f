"""The models whose flatness is measured: of finished runs, or one's own with their weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

import sampa
from sampa.lab.devices import find_device
from sampa.lab.models import MODELS, build
from sampa.lab.models.own import build_own
from sampa.lab.models.weights import read_weights
from sampa.lab.named import file_fingerprint
from sampa.lab.training.flatness import on_device, plain_batches
from sampa.lab.training.folder import RunFolder
from sampa.lab.training.recipes import find_recipe
from sampa.lab.training.run import Run
from sampa.lab.training.saved import load_saved
from sampa.lab.training.tasks import open_task
from sampa.lab.training.variants import labels, order
from sampa.messages import require


@dataclass(frozen=True)
class Opened:
    """A model with its data.

    Attributes:
        batches: The training samples that all measures see, as they are: without augmentation.
        loss_fn: The training loss.
        accuracy: Measures the test score.
        ends: The weights of the models that a line or plane goes through, by their names there.
    """

    model: nn.Module
    batches: list[Any]
    loss_fn: Callable[[Any], sampa.Loss]
    accuracy: Callable[[], float]
    ends: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)


@dataclass(frozen=True)
class Subject:
    """A model to measure, which is loaded when it is needed.

    Attributes:
        name: Unique among those compared.
        recipe: What it was trained on.
        method: How, with the settings in which its runs differ from others; subjects of one recipe
            and method are seeds of one thing.
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

    @property
    def identity(self) -> tuple[str | None, ...]:
        """What its numbers depend on, whatever it is called among others."""
        return self.recipe, self.state or self.name, self.which

    def load(self, data_dir: Path | None) -> tuple[Any, nn.Module]:
        """The task and the model, on the device that measures."""
        if self.folder is not None:
            saved = load_saved(self.folder, which=self.which, data_dir=data_dir)
            task, model = saved.task, saved.model
        else:
            task = open_task(self.run, data_dir)
            assert self.weights is not None
            model = own_model(self.model, self.weights, task.model_options())
        return task, model.to(find_device()).eval()

    def open(self, data_dir: Path | None, batch_size: int, count: int) -> Opened:
        """Load model and data."""
        task, model = self.load(data_dir)
        device = find_device()
        taken = [on_device(b, device) for b in plain_batches(task, batch_size, count)]
        return Opened(
            model,
            taken,
            lambda batch: task.loss(model, batch),
            lambda: task.evaluate(model, "test")[task.metric],
        )


def of_runs(folders: Sequence[Path], which: str | None) -> list[Subject]:
    """The models of finished runs, recipe by recipe in the catalog's order of methods.

    Raises:
        ValueError: If one is not finished.
    """
    found: dict[str, list[tuple[Path, Run]]] = {}
    for folder in folders:
        run, result = RunFolder(folder).run(), RunFolder(folder).result()
        require(str(folder), "an unfinished run", result is not None, "a finished run")
        found.setdefault(run.name, []).append((folder, run))
    subjects: list[Subject] = []
    for recipe, pairs in sorted(found.items()):
        named = list(zip(labels([run for _, run in pairs]), pairs, strict=True))
        for label, (folder, run) in sorted(named, key=lambda n: order(n[1][1], n[0])):
            name = f"{recipe} {label} seed {run.seed}"
            state = RunFolder(folder).owner().id
            subjects.append(
                Subject(name, recipe, label, run.seed, run, folder, which=which, state=state)
            )
    return subjects


def of_weights(model: str, weights: Path, recipe: str) -> Subject:
    """A model of one's own, on the data of a recipe."""
    state = f"{model} {file_fingerprint(weights)['sha256'][:16]}"
    run = find_recipe(recipe)
    name = f"{model.rpartition(':')[2]} {weights.stem}"
    return Subject(name, recipe, name, 0, run, None, model, weights, state=state)


def own_model(name: str, weights: Path, options: dict[str, Any]) -> nn.Module:
    """A network of ours by name, or one that the user named, with the weights of a file."""
    if ":" not in name:
        rule = "a network's name, package.module:Class, file.py:name or hf:PATH"
        require("--model", name, name in MODELS, rule)
        return build(name, path=weights, **options)
    model = build_own(name, {}, options)
    model.load_state_dict(read_weights(weights))
    return model
