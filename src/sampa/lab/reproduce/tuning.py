"""Tuning: learning rate and ρ from a small grid, on validation data, before reported seeds run.

The paper chooses SAM's ρ by a grid search on validation data. So do the reduced editions, with a
seed that no table reports; the learning rate is chosen first, the same for all methods.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from sampa.lab.reproduce.settings import DEFAULT, LARGER, SMALL, Edition, images, one_rho
from sampa.lab.results.outcome import Choice, Tuned
from sampa.lab.results.paper import Scale
from sampa.lab.results.sweep import highest_mean
from sampa.lab.training.run import SEED, Run


@dataclass(frozen=True)
class TuningGrid:
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

    def trials(self, scale: Scale, choice: Choice, methods: tuple[str, ...]) -> dict[str, Run]:
        """A run for each method, by the name of its folder."""
        run = replace(self.run(scale, choice), name=f"tuning-{scale}-{self.title}", seed=SEED)
        rhos = {m: "" if m == "sgd" else f"-rho{choice.rho:g}" for m in methods}
        return {f"{m}-lr{choice.lr:g}{rhos[m]}": replace(run, method=m) for m in methods}


def _noisy(noise: int, edition: Edition) -> Callable[[Scale, Choice], Run]:
    return lambda scale, choice: one_rho(images(scale, choice, noise=noise, edition=edition))


LRS, RHOS = (0.02, 0.05, 0.1), (0.05, 0.1, 0.2, 0.4)
STEADY_LRS = (0.02, 0.05)  # with more pixels some runs do not train steadily at 0.1
NOISY = TuningGrid("noise40", _noisy(40, LARGER), (0.05, 0.1), (0.1, 0.2), judges=("sam",))
GRIDS: dict[str, dict[Scale, TuningGrid]] = {
    "clean": {"cpu": TuningGrid("noise0", images, LRS, RHOS, judges=("sam",))},
    "small-noise": {"cpu": TuningGrid("noise40", _noisy(40, SMALL), LRS, RHOS)},
    "noise": {"cpu": TuningGrid("noise40", _noisy(40, LARGER), STEADY_LRS, RHOS), "smoke": NOISY},
    "noise80": {
        "cpu": TuningGrid("noise80", _noisy(80, LARGER), STEADY_LRS, (0.01, 0.05, 0.1, 0.2))
    },
}

Scores = Callable[[dict[str, Run]], dict[str, float]]
"""Carries trials out and gives their validation scores, by the same names."""


def tune(name: str, scale: Scale, score: Scores) -> Tuned | None:
    """Choose from a grid; None where a scale has none (the paper's values are used there)."""
    grid = GRIDS.get(name, {}).get(scale)
    if grid is None:
        return None
    by_lr = {lr: grid.trials(scale, Choice(lr, DEFAULT.rho), ("sgd", "sam")) for lr in grid.lrs}
    lr, scores = _best(by_lr, score)
    by_rho = {rho: grid.trials(scale, Choice(lr, rho), grid.judges) for rho in grid.rhos}
    rho, more = _best(by_rho, score)
    return Tuned(Choice(lr, rho), scores | more)


def _best(trials: dict[float, dict[str, Run]], score: Scores) -> tuple[float, dict[str, float]]:
    """The value with the highest mean validation score (the first of equals), and all scores."""
    scores = score({name: run for runs in trials.values() for name, run in runs.items()})
    judged = {value: [scores[name] for name in runs] for value, runs in trials.items()}
    return highest_mean(judged), scores
