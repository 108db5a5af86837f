"""Tuning: learning rate and ρ from a small grid, on validation data, before reported seeds run.

The paper chooses SAM's ρ by a grid search on validation data. So do the reduced editions, with a
seed that no table reports; the learning rate is chosen first, the same for all methods.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace

from sampa.reproduce.plan import Choice, Scale
from sampa.reproduce.settings import DEFAULT, images, one_rho
from sampa.train.run import Run

SEED = 1000  # reported seeds count from 0


@dataclass(frozen=True)
class Grid:
    """What is tried.

    Attributes:
        noise: Percent of wrong labels.
        lrs: Learning rates, tried with SGD and with SAM at the default ρ.
        rhos: Radii, tried at the best of them.
        methods: The methods that a radius is judged by, each with the ρ it gets for SAM's.
    """

    noise: int
    lrs: tuple[float, ...]
    rhos: tuple[float, ...]
    methods: tuple[str, ...]


@dataclass(frozen=True)
class Trial:
    """One tuning run and its place in the grid."""

    method: str
    lr: float
    rho: float
    run: Run

    @property
    def key(self) -> str:
        return f"{self.method}-lr{self.lr:g}" + (
            "" if self.method == "sgd" else f"-rho{self.rho:g}"
        )


GRIDS: dict[str, dict[Scale, Grid]] = {
    "clean": {
        "cpu": Grid(0, (0.02, 0.05, 0.1), (0.05, 0.1, 0.2, 0.4), ("sam",)),
    },
    "noise": {
        "cpu": Grid(40, (0.02, 0.05, 0.1), (0.05, 0.1, 0.2, 0.4), ("sam", "sampa-0.2")),
        "smoke": Grid(40, (0.05, 0.1), (0.1, 0.2), ("sam",)),
    },
    "noise80": {
        "cpu": Grid(80, (0.02, 0.05, 0.1), (0.01, 0.05, 0.1, 0.2), ("sam", "sampa-0.2")),
    },
}

Scores = Callable[[list[Trial]], list[float]]
"""Carries trials out and gives their validation scores."""


@dataclass(frozen=True)
class Tuned:
    """A choice with the scores it rests on."""

    choice: Choice
    scores: dict[str, float]


def tune(name: str, scale: Scale, score: Scores) -> Tuned | None:
    """Choose from a grid; None where a scale has none (the paper's values are used there)."""
    grid = GRIDS.get(name, {}).get(scale)
    if grid is None:
        return None
    by_lr = {
        lr: [_trial(scale, grid, m, lr, DEFAULT.rho) for m in ("sgd", "sam")] for lr in grid.lrs
    }
    scores = _scored(by_lr, score)
    lr = _best(by_lr, scores)
    by_rho = {rho: [_trial(scale, grid, m, lr, rho) for m in grid.methods] for rho in grid.rhos}
    scores |= _scored(by_rho, score)
    return Tuned(Choice(lr, _best(by_rho, scores)), scores)


def _trial(scale: Scale, grid: Grid, method: str, lr: float, rho: float) -> Trial:
    run = images(scale, Choice(lr, rho), noise=grid.noise)
    run = one_rho(run) if grid.noise else run
    name = f"tuning-{scale}-noise{grid.noise}"
    return Trial(method, lr, rho, replace(run, name=name, method=method, seed=SEED))


def _scored(groups: dict[float, list[Trial]], score: Scores) -> dict[str, float]:
    trials = [trial for group in groups.values() for trial in group]
    return {t.key: s for t, s in zip(trials, score(trials), strict=True)}


def _best(groups: dict[float, list[Trial]], scores: dict[str, float]) -> float:
    """The value with the highest mean validation score; the first of equals."""
    return max(groups, key=lambda value: statistics.fmean(scores[t.key] for t in groups[value]))
