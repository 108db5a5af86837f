"""Every experiment of the paper by its ID."""

from __future__ import annotations

from functools import partial

from sampa.lab.reproduce import gap, grids, theory, times, toy
from sampa.lab.reproduce.plan import Experiment, Planner
from sampa.lab.reproduce.runner import Pictures, run_grid
from sampa.messages import unknown


def grid(
    name: str,
    planner: Planner,
    tunings: tuple[str, ...],
    seeds: int,
    paper: str,
    cpu: str,
    pictures: Pictures = lambda outcome: (),
) -> Experiment:
    """An experiment that is a grid of training runs."""
    options = {"tunings": tunings, "seeds": seeds, "pictures": pictures}
    complete = partial(run_grid, planner=planner, **options)
    return Experiment(name, complete, paper, cpu, planner, seeds)


WEEKS, DAYS, ONE_GPU = "weeks on 2 GPUs", "days on 2 GPUs", "days on 1 GPU"
MINUTE = "a minute on two GPUs"
CLEAN_TUNING, SMALL_NOISE_TUNING, NOISE_TUNING = ("clean",), ("small-noise",), ("noise",)
TWO_NOISES = (*NOISE_TUNING, "noise80")
_ALL = (
    Experiment("fig-toy", toy.toy_figure, "seconds", "seconds"),
    Experiment("theory", theory.theory_bounds, "seconds", "seconds"),
    grid("tab-cifar10", grids.plan_cifar10, CLEAN_TUNING, 5, WEEKS, "25 min"),
    grid("full-cifar10", grids.plan_full_cifar10, ("full",), 5, WEEKS, "7 h"),
    grid("late-cifar10", grids.plan_late_cifar10, (), 3, "an hour on 2 GPUs", "4 h"),
    grid("tab-cifar100", grids.plan_cifar100, CLEAN_TUNING, 5, WEEKS, "25 min"),
    grid("tab-imagenet", grids.plan_imagenet, CLEAN_TUNING, 3, WEEKS, "3 min"),
    Experiment("fig-efficiency", times.efficiency_figure, MINUTE, "1 min"),
    Experiment("tab-efficiency", times.efficiency_table, DAYS, "10 min", grids.plan_efficiency),
    Experiment("tab-memory", times.memory, MINUTE, "1 min"),
    grid("tab-vit", grids.plan_vit, (), 3, "a day on 2 GPUs", "60 min"),
    grid("tab-glue", grids.plan_glue, (), 3, DAYS, "20 min"),
    grid("tab-noise", grids.plan_noise, TWO_NOISES, 5, WEEKS, "25 min", grids.over_noise),
    grid("tab-incorporation", grids.plan_incorporation, SMALL_NOISE_TUNING, 3, DAYS, "10 min"),
    grid("tab-optsam", grids.plan_optsam, CLEAN_TUNING, 3, ONE_GPU, "5 min"),
    grid("tab-sam-db", grids.plan_sam_db, CLEAN_TUNING, 3, ONE_GPU, "5 min"),
    grid("tab-penalty", grids.plan_penalty, (*CLEAN_TUNING, "noise80"), 3, DAYS, "5 min"),
    grid("fig-lambda", grids.plan_lambdas, NOISE_TUNING, 3, WEEKS, "10 min", grids.over_lambda),
    Experiment("fig-gradient-gap", gap.gradient_gap, "a day on 1 GPU", "2 min", gap.plan_gap),
    Experiment("tab-two-devices", times.two_devices, MINUTE, "2 min"),
    Experiment("tab-batch-time", times.batch_time, MINUTE, "3 min"),
)

EXPERIMENTS: dict[str, Experiment] = {experiment.id: experiment for experiment in _ALL}


def find_experiment(name: str) -> Experiment:
    """The experiment of an ID.

    Raises:
        ValueError: Naming the nearest ones.
    """
    if name not in EXPERIMENTS:
        raise ValueError(unknown("experiment", name, EXPERIMENTS))
    return EXPERIMENTS[name]
