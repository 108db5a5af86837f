"""Tuning: learning rate and ρ from a small grid, on validation data, before reported seeds run.

The paper chooses SAM's ρ by a grid search on validation data. So do the reduced editions, with a
seed that no table reports; the learning rate is chosen first, the same for all methods.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from sampa.lab.reproduce.settings import (
    DEFAULT,
    FULL_TRIAL,
    LARGER,
    SAM_RHOS,
    SMALL,
    Edition,
    images,
    one_rho,
)
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
        lrs: Learning rates, tried with SGD and with SAM at the default ρ; one alone is taken.
        rhos: Radii of SAM, tried at the best of them; other methods take theirs in proportion.
        judges: The methods that a radius is judged by.
        apart: Whether each of these gets a radius of its own, from as many as are needed.
    """

    title: str
    run: Callable[[Scale, Choice], Run]
    lrs: tuple[float, ...]
    rhos: tuple[float, ...]
    judges: tuple[str, ...] = ("sam", "sampa-0.2")
    apart: bool = False

    def trials(self, scale: Scale, choice: Choice, methods: tuple[str, ...]) -> dict[str, Run]:
        """A run for each method, by the name of its folder."""
        run = replace(self.run(scale, choice), name=f"tuning-{scale}-{self.title}", seed=SEED)
        rhos = {m: "" if m == "sgd" else f"-rho{run.rhos[m]:g}" for m in methods}
        return {f"{m}-lr{choice.lr:g}{rhos[m]}": replace(run, method=m) for m in methods}


def _noisy(noise: int, edition: Edition) -> Callable[[Scale, Choice], Run]:
    return lambda scale, choice: one_rho(images(scale, choice, noise=noise, edition=edition))


def _full(scale: Scale, choice: Choice) -> Run:
    return images(scale, choice, edition=FULL_TRIAL)


PAPERS_LR = 0.1
LRS, RHOS = (0.02, 0.05, 0.1), (0.05, 0.1, 0.2, 0.4)
STEADY_LRS = (0.02, 0.05)  # with more pixels some runs do not train steadily at 0.1
NOISY = TuningGrid("noise40", _noisy(40, LARGER), (0.05, 0.1), (0.1, 0.2), judges=("sam",))
APART = ("sam", "sampa-0", "sampa-0.2")
GRIDS: dict[str, dict[Scale, TuningGrid]] = {
    "clean": {"cpu": TuningGrid("noise0", images, LRS, RHOS, judges=("sam",))},
    "full": {"cpu": TuningGrid("full", _full, (PAPERS_LR,), (0.05, 0.1, 0.2), APART, apart=True)},
    "small-noise": {"cpu": TuningGrid("noise40", _noisy(40, SMALL), LRS, RHOS)},
    "noise": {"cpu": TuningGrid("noise40", _noisy(40, LARGER), STEADY_LRS, RHOS), "smoke": NOISY},
    "noise80": {
        "cpu": TuningGrid("noise80", _noisy(80, LARGER), STEADY_LRS, (0.01, 0.05, 0.1, 0.2))
    },
}
OUTERMOST = (1 / 8, 8)  # how far outside its first radii a grid grows, in units of the nearest

Scores = Callable[[dict[str, Run]], dict[str, float]]
"""Carries trials out and gives their validation scores, by the same names."""


def tune(name: str, scale: Scale, score: Scores) -> Tuned | None:
    """Choose from a grid; None where a scale has none (the paper's values are used there)."""
    grid = GRIDS.get(name, {}).get(scale)
    if grid is None:
        return None
    by_lr = {lr: grid.trials(scale, Choice(lr, DEFAULT.rho), ("sgd", "sam")) for lr in grid.lrs}
    lr, scores = _best(by_lr, score) if len(by_lr) > 1 else (grid.lrs[0], {})
    if grid.apart:
        rhos, more = _own_radii(grid, scale, lr, score)
        return Tuned(Choice(lr, rhos["sam"], rhos), scores | more)
    by_rho = {rho: grid.trials(scale, Choice(lr, rho), grid.judges) for rho in grid.rhos}
    rho, more = _best(by_rho, score)
    return Tuned(Choice(lr, rho), scores | more)


def _best(trials: dict[float, dict[str, Run]], score: Scores) -> tuple[float, dict[str, float]]:
    """The value with the highest mean validation score (the first of equals), and all scores."""
    scores = score({name: run for runs in trials.values() for name, run in runs.items()})
    judged = {value: [scores[name] for name in runs] for value, runs in trials.items()}
    return highest_mean(judged), scores


def _own_radii(
    grid: TuningGrid, scale: Scale, lr: float, score: Scores
) -> tuple[dict[str, float], dict[str, float]]:
    """The best ρ of each method, and all scores.

    A method whose best is the smallest or the largest that was tried gets half or twice that too,
    until its best is inside.
    """
    tried: dict[str, dict[float, float]] = {method: {} for method in grid.judges}
    wanted = {method: list(grid.rhos) for method in grid.judges}
    scores: dict[str, float] = {}
    while any(wanted.values()):
        trials = {
            (method, rho): grid.trials(scale, Choice(lr, rho), (method,))
            for method, rhos in wanted.items()
            for rho in rhos
        }
        scores |= score({name: run for runs in trials.values() for name, run in runs.items()})
        for (method, rho), runs in trials.items():
            tried[method][rho] = scores[next(iter(runs))]
        wanted = {method: _outside(grid.rhos, found) for method, found in tried.items()}
    best = {method: max(found, key=lambda rho: found[rho]) for method, found in tried.items()}
    return {method: SAM_RHOS[method] * rho for method, rho in best.items()}, scores


def _outside(first: tuple[float, ...], found: dict[float, float]) -> list[float]:
    """The next radius to try, if the best so far is at an edge."""
    best, (inner, outer) = max(found, key=lambda rho: found[rho]), OUTERMOST
    if best == min(found) and best > inner * min(first):
        return [best / 2]
    if best == max(found) and best < outer * max(first):
        return [best * 2]
    return []
