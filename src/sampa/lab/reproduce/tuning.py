"""Tuning: learning rate and ρ from a small grid, on validation data, before reported seeds run.

The paper chooses SAM's ρ by a grid search on validation data. So do the reduced editions, with a
seed that no table reports; the learning rate is chosen first, the same for all methods.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from sampa.lab.reproduce.plan import Choice, Scale
from sampa.lab.reproduce.settings import DEFAULT, LARGER, SMALL, Edition, images, one_rho
from sampa.lab.training.run import Run

SEED = 1000  # reported seeds count from 0


@dataclass(frozen=True)
class Grid:
    """What is tried.

    Attributes:
        title: What the runs are named after.
        run: From scale and choice to what is trained.
        lrs: Learning rates, tried with SGD and with SAM at the default ρ.
        rhos: Radii, tried at the best of them.
        judges: The methods that a radius is judged by.
    """

    title: str
    run: Callable[[Scale, Choice], Run]
    lrs: tuple[float, ...]
    rhos: tuple[float, ...]
    judges: tuple[str, ...] = ("sam", "sampa-0.2")


@dataclass(frozen=True)
class Trial:
    """One tuning run and its place in the grid."""

    method: str
    lr: float
    rho: float
    run: Run

    @property
    def key(self) -> str:
        """A folder's name."""
        rho = "" if self.method == "sgd" else f"-rho{self.rho:g}"
        return f"{self.method}-lr{self.lr:g}{rho}"


def _noisy(noise: int, edition: Edition) -> Callable[[Scale, Choice], Run]:
    return lambda scale, choice: one_rho(images(scale, choice, noise=noise, edition=edition))


LRS, RHOS = (0.02, 0.05, 0.1), (0.05, 0.1, 0.2, 0.4)
STEADY = (0.02, 0.05)  # with more pixels some runs do not train steadily at 0.1
GRIDS: dict[str, dict[Scale, Grid]] = {
    "clean": {"cpu": Grid("noise0", images, LRS, RHOS, judges=("sam",))},
    "small-noise": {"cpu": Grid("noise40", _noisy(40, SMALL), LRS, RHOS)},
    "noise": {
        "cpu": Grid("noise40", _noisy(40, LARGER), STEADY, RHOS),
        "smoke": Grid("noise40", _noisy(40, LARGER), (0.05, 0.1), (0.1, 0.2), judges=("sam",)),
    },
    "noise80": {"cpu": Grid("noise80", _noisy(80, LARGER), STEADY, (0.01, 0.05, 0.1, 0.2))},
}

Scores = Callable[[list[Trial]], list[float]]
"""Carries trials out and gives their validation scores."""


@dataclass(frozen=True)
class Tuned:
    """A choice with the scores it rests on."""

    choice: Choice
    scores: dict[str, float]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def tune(name: str, scale: Scale, score: Scores) -> Tuned | None:
    """Choose from a grid; None where a scale has none (the paper's values are used there)."""
    grid = GRIDS.get(name, {}).get(scale)
    if grid is None:
        return None
    by_lr = {lr: [_trial(scale, grid, m, lr) for m in ("sgd", "sam")] for lr in grid.lrs}
    scores = _scored(by_lr, score)
    lr = _best(by_lr, scores)
    by_rho = {rho: [_trial(scale, grid, m, lr, rho) for m in grid.judges] for rho in grid.rhos}
    scores |= _scored(by_rho, score)
    return Tuned(Choice(lr, _best(by_rho, scores)), scores)


def _trial(scale: Scale, grid: Grid, method: str, lr: float, rho: float = DEFAULT.rho) -> Trial:
    run, name = grid.run(scale, Choice(lr, rho)), f"tuning-{scale}-{grid.title}"
    return Trial(method, lr, rho, replace(run, name=name, method=method, seed=SEED))


def _scored(groups: dict[float, list[Trial]], score: Scores) -> dict[str, float]:
    trials = [trial for group in groups.values() for trial in group]
    return {t.key: s for t, s in zip(trials, score(trials), strict=True)}


def _best(groups: dict[float, list[Trial]], scores: dict[str, float]) -> float:
    """The value with the highest mean validation score; the first of equals."""
    return max(groups, key=lambda value: statistics.fmean(scores[t.key] for t in groups[value]))
