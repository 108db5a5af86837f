"""Folders of runs as `sampa train` writes them, with numbers that are easy to check by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sampa.lab.report.collect import collect
from sampa.lab.report.groups import Recipe, group
from sampa.lab.training.folder import RunFolder
from sampa.lab.training.run import DataSpec, ModelSpec, Run

EVIL = "<script>document.title = 'taken over'</script>"
CONDITIONS: dict[str, Any] = {
    "commit": "0123456789ab",
    "versions": {"python": "3.11.7", "torch": "2.13.0"},
    "machine": {"processor": "a processor", "cores": 2},
    "threads": 1,
    "processes": 1,
}
SCORES = {"sgd": (90.0, 91.0, 92.0), "sam": (91.0, 93.0, 92.0), "sampa": (92.0, 93.0, 94.0)}


def a_run(method: str = "sgd", seed: int = 0, **changes: Any) -> Run:
    values: dict[str, Any] = {
        "name": "toy",
        "about": "a toy for tests",
        "data": DataSpec("digits"),
        "model": ModelSpec("conv3"),
        "epochs": 3,
        **changes,
    }
    return Run(method=method, seed=seed, **values)


def epoch_lines(run: Run, accuracy: float) -> list[dict[str, Any]]:
    perturbs = run.method != "sgd"
    return [
        {
            "epoch": epoch,
            "step": 10 * (epoch + 1),
            "lr": 0.1,
            "train_loss": 2.0 - 0.5 * epoch + 0.1 * run.seed,
            "sharpness": 0.1 * (epoch + 1) if perturbs else None,
            "cosine": 0.5 if perturbs else None,
            "skips": 0,
            "validation_accuracy": accuracy - 3 + epoch,
        }
        for epoch in range(run.epochs)
    ]


def write_run(
    path: Path,
    run: Run,
    accuracy: float = 90.0,
    seconds: float = 10.0,
    *,
    best_epoch: int = 2,
    conditions: dict[str, Any] = CONDITIONS,
    test: dict[str, float] | None = None,
    finished: bool = True,
) -> RunFolder:
    folder = RunFolder(path)
    path.mkdir(parents=True)
    folder.write("run.json", {"run": run.as_json(), "conditions": conditions})
    for line in epoch_lines(run, accuracy):
        folder.append(line)
    if finished:
        scores = test or {"accuracy": accuracy, "top5": 99.0}
        result = {"test": scores, "test_last": scores, "best_epoch": best_epoch, "updates": 30}
        folder.write("result.json", {**result, "seconds": seconds, "limited": False})
    return folder


def write_grid(
    root: Path, scores: Mapping[str, Sequence[float]] | None = None, **changes: Any
) -> Path:
    """Each method with each of its seeds, as `sampa compare` lays them out."""
    for method, values in (scores or SCORES).items():
        for seed, accuracy in enumerate(values):
            run = a_run(method, seed, **changes)
            seconds = 20.0 + seed if method == "sam" else 10.0 + seed
            write_run(root / method / f"seed-{seed}", run, accuracy, seconds, best_epoch=seed)
    return root


MANY = 306  # runs of `write_many`


def write_many(root: Path) -> Path:
    """As many runs as the records of the paper's tables have: 17 recipes of 6 methods, 3 seeds."""
    methods = ("sgd", "sam", "sampa-0", "sampa", "looksam", "asam")
    scores = {method: (90.0 + i, 91.5, 92.0 + i) for i, method in enumerate(methods)}
    for number in range(MANY // len(methods) // 3):
        write_grid(root / f"recipe-{number}", scores, name=f"recipe-{number}", epochs=16)
    return root


def only_recipe(root: Path, baseline: str | None = None) -> Recipe:
    """The recipe of the runs below a folder that hold one."""
    recipes, problems = group(collect([root]).runs, baseline)
    assert not problems
    (recipe,) = recipes
    return recipe
