"""Every experiment of the paper by its ID."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from sampa.lab.reproduce import gap, grids, pictures, theory, times, toy
from sampa.lab.reproduce.outcome import Outcome
from sampa.lab.reproduce.plan import Scale
from sampa.lab.reproduce.request import Experiment, Request
from sampa.lab.reproduce.runner import GridSpec, Planner, named, run_grid
from sampa.lab.training.run import Run
from sampa.messages import unknown

CLEAN, NOISE = ("clean",), ("small-noise",)


def grid(spec: GridSpec, paper: str, cpu: str) -> Experiment:
    """An experiment that is a grid of training runs."""
    carry_out = partial(run_grid, spec)
    return _experiment(spec.name, spec.title, spec.planner, carry_out, paper, cpu)


def _experiment(
    name: str,
    title: str,
    planner: Planner,
    carry_out: Callable[[Request], Outcome],
    paper: str,
    cpu: str,
) -> Experiment:
    def runs(scale: Scale) -> list[Run]:
        return [cell.run for cell in named(planner(scale, {}), name, scale).cells]

    return Experiment(name, title, _times(paper, cpu), carry_out, runs)


def measured(
    name: str, title: str, carry_out: Callable[[Request], Outcome], cpu: str
) -> Experiment:
    """An experiment that trains nothing."""
    paper = "seconds" if cpu == "seconds" else "a minute on two GPUs"
    return Experiment(name, title, _times(paper, cpu), carry_out, lambda scale: [])


def _times(paper: str, cpu: str) -> dict[Scale, str]:
    return {"paper": paper, "cpu": cpu, "smoke": "seconds"}


def _efficiency() -> Experiment:
    """Trained networks and timed steps."""
    title = "accuracy, sequential gradients and time of the efficient variants"
    spec = GridSpec("tab-efficiency", title, grids.efficiency, NOISE, 3)
    carry_out = partial(times.efficiency_table, partial(run_grid, spec))
    return _experiment(spec.name, title, spec.planner, carry_out, "days on 2 GPUs", "10 min")


_ALL = (
    measured("fig-toy", toy.TITLE, toy.carry_out, "seconds"),
    measured("theory", theory.TITLE, theory.carry_out, "seconds"),
    grid(
        GridSpec(
            "tab-cifar10",
            "CIFAR-10: SGD, SAM, SAMPa-0, SAMPa-0.2, and SAMPa-0.2 with twice the epochs",
            grids.cifar10,
            CLEAN,
            seeds=5,
        ),
        "weeks on 2 GPUs",
        "25 min",
    ),
    grid(
        GridSpec("tab-cifar100", "the same on CIFAR-100", grids.cifar100, CLEAN, seeds=5),
        "weeks on 2 GPUs",
        "25 min",
    ),
    grid(
        GridSpec(
            "tab-imagenet",
            "ImageNet-1K: SAM and SAMPa-0.2, top-1 and top-5",
            grids.imagenet,
            CLEAN,
            seeds=3,
        ),
        "weeks on 2 GPUs",
        "3 min",
    ),
    measured("fig-efficiency", times.TITLES["fig-efficiency"], times.efficiency_figure, "1 min"),
    _efficiency(),
    measured("tab-memory", times.TITLES["tab-memory"], times.memory, "1 min"),
    grid(
        GridSpec("tab-vit", "fine-tuning ViT-B/16: SAM and SAMPa-0.2", grids.vit, (), seeds=3),
        "a day on 2 GPUs",
        "60 min",
    ),
    grid(
        GridSpec(
            "tab-glue",
            "fine-tuning BERT on GLUE: AdamW, SAM, SAMPa-0, SAMPa-0.1",
            grids.glue,
            (),
            seeds=3,
        ),
        "days on 2 GPUs",
        "20 min",
    ),
    grid(
        GridSpec(
            "tab-noise",
            "label noise from 0 to 80 %: SGD, SAM, SAMPa-0, SAMPa-0.2",
            grids.noise,
            ("noise", "noise80"),
            seeds=5,
            pictures=pictures.over_noise,
        ),
        "weeks on 2 GPUs",
        "25 min",
    ),
    grid(
        GridSpec(
            "tab-incorporation",
            "mSAM, ASAM, SAM-ON, VaSSO and BiSAM, each alone and with SAMPa",
            grids.incorporation,
            NOISE,
            seeds=3,
        ),
        "days on 2 GPUs",
        "10 min",
    ),
    grid(
        GridSpec("tab-optsam", "OptSAM beside SGD and SAM", grids.optsam, CLEAN, seeds=3),
        "days on 1 GPU",
        "5 min",
    ),
    grid(
        GridSpec(
            "tab-sam-db",
            "SAM with its two gradients on different batches",
            grids.sam_db,
            CLEAN,
            seeds=3,
        ),
        "days on 1 GPU",
        "5 min",
    ),
    grid(
        GridSpec(
            "tab-penalty",
            "the gradient penalty beside SAM and SAMPa-0.2",
            grids.penalty,
            ("clean", "noise80"),
            seeds=3,
        ),
        "days on 2 GPUs",
        "5 min",
    ),
    grid(
        GridSpec(
            "fig-lambda",
            "sweep of λ from 0 to 1",
            grids.lambdas,
            ("noise",),
            seeds=3,
            pictures=pictures.over_lambda,
        ),
        "weeks on 2 GPUs",
        "10 min",
    ),
    _experiment(gap.NAME, gap.TITLE, gap.plan, gap.carry_out, "a day on 1 GPU", "2 min"),
    measured("tab-two-devices", times.TITLES["tab-two-devices"], times.two_devices, "2 min"),
    measured("tab-batch-time", times.TITLES["tab-batch-time"], times.batch_time, "3 min"),
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
