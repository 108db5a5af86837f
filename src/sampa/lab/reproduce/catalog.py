"""Every experiment of the paper by its ID."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from sampa.lab.reproduce import gap, grids, theory, times, toy
from sampa.lab.reproduce.plan import Experiment, Planner, Request
from sampa.lab.reproduce.runner import Pictures, run_grid
from sampa.lab.results.outcome import Outcome, Scale
from sampa.messages import unknown

TITLES = {
    "fig-toy": "f(x) = ‖x‖²: SAM, RandSAM, OptSAM and SAMPa-λ",
    "theory": "the potential V_t and the rate of the theorem, bound against measured",
    "tab-cifar10": "CIFAR-10: SGD, SAM, SAMPa-0, SAMPa-0.2, and SAMPa-0.2 with twice the epochs",
    "tab-cifar100": "the same on CIFAR-100",
    "tab-imagenet": "ImageNet-1K: SAM and SAMPa-0.2, top-1 and top-5",
    "fig-efficiency": "sequential gradients and time of the efficient variants",
    "tab-efficiency": "accuracy, sequential gradients and time of the efficient variants",
    "tab-memory": "memory of SAM, SAMPa-0.2, LookSAM, AE-SAM, SAF, MESA and ESAM",
    "tab-vit": "fine-tuning ViT-B/16: SAM and SAMPa-0.2",
    "tab-glue": "fine-tuning BERT on GLUE: AdamW, SAM, SAMPa-0, SAMPa-0.1",
    "tab-noise": "label noise from 0 to 80 %: SGD, SAM, SAMPa-0, SAMPa-0.2",
    "tab-incorporation": "mSAM, ASAM, SAM-ON, VaSSO and BiSAM, each alone and with SAMPa",
    "tab-optsam": "OptSAM beside SGD and SAM",
    "tab-sam-db": "SAM with its two gradients on different batches",
    "tab-penalty": "the gradient penalty beside SAM and SAMPa-0.2",
    "fig-lambda": "sweep of λ from 0 to 1",
    "fig-gradient-gap": "cosine and distance of ∇f(x_t) and ∇f(y_t) over training",
    "tab-two-devices": "mSAM (m = 2) and SAMPa-0.2 on two devices, SAM on one: time",
    "tab-batch-time": "time of a batch against its size",
}


def experiment(
    name: str,
    complete: Callable[[Outcome, Request], Outcome],
    paper: str,
    cpu: str,
    planner: Planner | None = None,
) -> Experiment:
    """An experiment, and how long it takes at the paper's scale and on two cores."""
    time: dict[Scale, str] = {"paper": paper, "cpu": cpu, "smoke": "seconds"}
    return Experiment(name, TITLES[name], time, complete, planner)


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
    return experiment(name, partial(run_grid, planner=planner, **options), paper, cpu, planner)


WEEKS, DAYS, ONE_GPU = "weeks on 2 GPUs", "days on 2 GPUs", "days on 1 GPU"
MINUTE = "a minute on two GPUs"
CLEAN, SMALL_NOISE, NOISE = ("clean",), ("small-noise",), ("noise",)
_ALL = (
    experiment("fig-toy", toy.complete, "seconds", "seconds"),
    experiment("theory", theory.complete, "seconds", "seconds"),
    grid("tab-cifar10", grids.cifar10, CLEAN, 5, WEEKS, "25 min"),
    grid("tab-cifar100", grids.cifar100, CLEAN, 5, WEEKS, "25 min"),
    grid("tab-imagenet", grids.imagenet, CLEAN, 3, WEEKS, "3 min"),
    experiment("fig-efficiency", times.efficiency_figure, MINUTE, "1 min"),
    experiment("tab-efficiency", times.efficiency_table, DAYS, "10 min", grids.efficiency),
    experiment("tab-memory", times.memory, MINUTE, "1 min"),
    grid("tab-vit", grids.vit, (), 3, "a day on 2 GPUs", "60 min"),
    grid("tab-glue", grids.glue, (), 3, DAYS, "20 min"),
    grid("tab-noise", grids.noise, (*NOISE, "noise80"), 5, WEEKS, "25 min", grids.over_noise),
    grid("tab-incorporation", grids.incorporation, SMALL_NOISE, 3, DAYS, "10 min"),
    grid("tab-optsam", grids.optsam, CLEAN, 3, ONE_GPU, "5 min"),
    grid("tab-sam-db", grids.sam_db, CLEAN, 3, ONE_GPU, "5 min"),
    grid("tab-penalty", grids.penalty, (*CLEAN, "noise80"), 3, DAYS, "5 min"),
    grid("fig-lambda", grids.lambdas, NOISE, 3, WEEKS, "10 min", grids.over_lambda),
    experiment("fig-gradient-gap", gap.complete, "a day on 1 GPU", "2 min", gap.plan),
    experiment("tab-two-devices", times.two_devices, MINUTE, "2 min"),
    experiment("tab-batch-time", times.batch_time, MINUTE, "3 min"),
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
