"""How long reduced editions take on one core, from a stated time of a gradient of each network."""

from __future__ import annotations

from collections.abc import Iterable

from sampa.lab.reproduce.settings import DEFAULT
from sampa.lab.reproduce.tuning import GRIDS
from sampa.lab.results.outcome import Choice
from sampa.lab.training.hyperparameters import BASE_NAMES, epochs_of
from sampa.lab.training.run import Run

TRAINING_SAMPLES = {  # for training, as published with each data set
    "cifar10": 50_000,
    "cifar100": 50_000,
    "imagenet": 1_281_167,
    "glue/cola": 8_551,
    "glue/sst-2": 67_349,
    "glue/mrpc": 3_668,
    "glue/sts-b": 5_749,
    "glue/qqp": 363_846,
    "glue/mnli": 392_702,
    "glue/qnli": 104_743,
    "glue/rte": 2_490,
    "glue/wnli": 635,
}
GRADIENT_SECONDS = {  # of a gradient of a thousand samples, on one core of the records' machine
    "conv3": 0.4,
    "pooled-resnet": 2.0,
    "resnet20": 5.0,
    "resnet56": 15.0,
    "efficientnet-lite0-imagenet": 200.0,  # with its share of judging 10,000 test images
    "minilm": 100.0,  # with 48 tokens
}


def core_hours(runs: Iterable[Run]) -> float:
    """Of runs at the reduced scale; what perturbs counts as two gradients a step."""
    return sum(map(_seconds, runs)) / 3600


def _seconds(run: Run) -> float:
    whole = TRAINING_SAMPLES[run.data.name] if run.data.subset is None else run.data.subset
    gradients = 1 if run.method in BASE_NAMES else 2
    samples = whole * (1 - run.data.validation) * epochs_of(run) * gradients
    return samples / 1000 * GRADIENT_SECONDS[run.model.name]


def tuning_hours(name: str) -> float:
    """Of a tuning at the reduced scale."""
    grid, trials = GRIDS[name]["cpu"], list[Run]()
    first, *others = grid.lrs
    for lr in (first, *others) if others else ():
        trials += grid.trials("cpu", Choice(lr, DEFAULT.rho), grid.lr_judges).values()
    for rho in (*grid.rhos, *grid.rhos[-1:]):  # most often one more than the first ones
        trials += grid.trials("cpu", Choice(first, rho), grid.judges).values()
    return core_hours(trials)


def hours_in_words(hours: float) -> str:
    """Such as `6.5 core-hours` or `40 core-minutes`."""
    return f"{hours:.1f} core-hours" if hours >= 1 else f"{60 * hours:.0f} core-minutes"
