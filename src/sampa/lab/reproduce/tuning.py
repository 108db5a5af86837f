"""Tuning: ρ of each method from a grid, on validation data, before reported seeds run.

The paper chooses SAM's ρ by a grid search on validation data. The reduced editions choose that of
every method, with a seed that no table reports: which ρ is right depends on the method, and a
comparison at one ρ tells more about ρ than about methods. The learning rate is the same
for all methods, so that they differ in nothing else: it is a setting of the base optimizer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from sampa.lab.reproduce.settings import (
    DEFAULT,
    FINE_TUNING_LR,
    FULL_TRIAL,
    fine_tuned,
    glue_run,
    images,
    in_proportion,
)
from sampa.lab.results.outcome import Choice, Tuned
from sampa.lab.results.paper import Scale
from sampa.lab.results.sweep import highest_mean
from sampa.lab.training.hyperparameters import radius_of
from sampa.lab.training.run import SEED, Run


@dataclass(frozen=True)
class TuningGrid:
    """What is tried.

    Attributes:
        title: What the runs are named after.
        run: From scale and choice to what is trained.
        lrs: Learning rates, tried with SAM at the default ρ and with the base; one alone is taken.
        rhos: Radii of SAM, tried at the best of them; those of other methods are in proportion.
            None leaves the paper's.
        judges: The methods that a radius is judged by.
        apart: Whether each of these gets a radius of its own, from as many as are needed.
        lr_judges: The methods that a learning rate is judged by.
    """

    title: str
    run: Callable[[Scale, Choice], Run]
    lrs: tuple[float, ...]
    rhos: tuple[float, ...]
    judges: tuple[str, ...] = ("sam", "sampa-0.2")
    apart: bool = False
    lr_judges: tuple[str, ...] = ("sgd", "sam")

    def trials(self, scale: Scale, choice: Choice, methods: tuple[str, ...]) -> dict[str, Run]:
        """A run for each method, by the name of its folder."""
        run = replace(self.run(scale, choice), name=f"tuning-{scale}-{self.title}", seed=SEED)
        runs = [
            replace(run, method="sgd") if m == "sgd" else in_proportion(run, m) for m in methods
        ]
        return {_folder_name(trial): trial for trial in runs}


def _folder_name(run: Run) -> str:
    rho = radius_of(run)
    return f"{run.method}-lr{run.base.lr:g}" + ("" if rho is None else f"-rho{rho:g}")


def _noisy(noise: int) -> Callable[[Scale, Choice], Run]:
    return lambda scale, choice: images(scale, choice, noise=noise)


def _full(scale: Scale, choice: Choice) -> Run:
    return images(scale, choice, edition=FULL_TRIAL)


def _cifar100(scale: Scale, choice: Choice) -> Run:
    return images(scale, choice, classes=100)


def _each(
    title: str,
    run: Callable[[Scale, Choice], Run],
    rhos: tuple[float, ...],
    methods: tuple[str, ...] = ("sam", "sampa-0", "sampa-0.2"),
    lr: float = DEFAULT.lr,
) -> TuningGrid:
    """A radius for each method."""
    return TuningGrid(title, run, (lr,), rhos, methods, apart=True)


def _mrpc(scale: Scale, choice: Choice) -> Run:
    """The smaller task, a tenth held back; runs that are reported hold nothing back."""
    run = glue_run(scale, "mrpc", choice)
    return replace(run, data=replace(run.data, validation=0.1))


PAPERS_LR = 0.1
GLUE_LRS = TuningGrid("mrpc", _mrpc, (5e-5, 1e-4, 2e-4), (), (), lr_judges=("adamw",))
RHOS, NOISE_RHOS = (0.05, 0.1, 0.2), (0.1, 0.2, 0.4)  # wrong labels want larger ones
NOISY = TuningGrid("noise40", _noisy(40), (0.05, 0.1), (0.1, 0.2), judges=("sam",))
WITH_RADIUS = ("looksam", "ae-sam", "esam")
INCORPORATED = ("msam", "asam", "sam-on", "vasso", "bisam")
JOINED = tuple(f"sampa+{name}" for name in INCORPORATED)
GRIDS: dict[str, dict[Scale, TuningGrid]] = {
    "clean": {"cpu": _each("noise0", images, RHOS)},
    "full": {"cpu": _each("full", _full, RHOS, lr=PAPERS_LR)},
    "cifar100": {"cpu": _each("cifar100", _cifar100, RHOS)},
    "noise": {"cpu": _each("noise40", _noisy(40), NOISE_RHOS), "smoke": NOISY},
    "noise80": {"cpu": _each("noise80", _noisy(80), NOISE_RHOS)},
    "naive": {"cpu": _each("noise0", images, RHOS, ("optsam", "sam-db"))},
    "efficient": {"cpu": _each("noise40", _noisy(40), NOISE_RHOS, WITH_RADIUS)},
    "incorporated": {
        "cpu": _each("noise40", _noisy(40), NOISE_RHOS, (*INCORPORATED, *JOINED)),
    },
    "glue": {"cpu": GLUE_LRS},
    "fine-tuning": {
        "cpu": _each("fine-tuning", fine_tuned, RHOS, ("sam", "sampa-0.2"), FINE_TUNING_LR)
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
    by_lr = {lr: grid.trials(scale, Choice(lr, DEFAULT.rho), grid.lr_judges) for lr in grid.lrs}
    lr, scores = _best(by_lr, score) if len(by_lr) > 1 else (grid.lrs[0], {})
    if not grid.rhos:
        return Tuned(Choice(lr, DEFAULT.rho), scores)
    if grid.apart:
        rhos, more = _own_radii(grid, scale, lr, score)
        return Tuned(Choice(lr, rhos.get("sam", DEFAULT.rho), rhos), scores | more)
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
    own: dict[tuple[str, float], float] = {}  # a method's own radius, by that of SAM
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
            ((name, run),) = runs.items()
            tried[method][rho], own[method, rho] = scores[name], radius_of(run) or rho
        wanted = {method: _outside(grid.rhos, found) for method, found in tried.items()}
    best = {method: max(found, key=lambda rho: found[rho]) for method, found in tried.items()}
    return {method: own[method, rho] for method, rho in best.items()}, scores


def _outside(first: tuple[float, ...], found: dict[float, float]) -> list[float]:
    """The next radius to try, if the best so far is at an edge."""
    best, (inner, outer) = max(found, key=lambda rho: found[rho]), OUTERMOST
    if best == min(found) and best > inner * min(first):
        return [best / 2]
    if best == max(found) and best < outer * max(first):
        return [best * 2]
    return []
