"""Every experiment of the paper by its ID."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol

from sampa.names import unknown
from sampa.reproduce import grids, theory, toy
from sampa.reproduce.outcome import Outcome
from sampa.reproduce.plan import Scale
from sampa.reproduce.request import Experiment, Request
from sampa.reproduce.runner import Planner, named, run_grid
from sampa.train.run import Run


class Measurement(Protocol):
    """A module of this package that measures."""

    @property
    def TITLE(self) -> str: ...

    def carry_out(self, request: Request) -> Outcome: ...


SECONDS: dict[Scale, str] = {"paper": "seconds", "cpu": "seconds", "smoke": "seconds"}


def grid(
    name: str,
    title: str,
    planner: Planner,
    tunings: Sequence[str],
    seeds: int,
    paper: str,
    cpu: str,
) -> Experiment:
    """An experiment that is a grid of training runs."""

    def runs(scale: Scale) -> list[Run]:
        return [cell.run for cell in named(planner(scale, {}), name, scale).cells]

    carry_out = partial(run_grid, name, title, planner, tunings, seeds)
    return Experiment(
        name, title, {"paper": paper, "cpu": cpu, "smoke": "seconds"}, carry_out, runs
    )


def measured(name: str, module: Measurement) -> Experiment:
    """An experiment of a few seconds that trains nothing."""
    return Experiment(name, module.TITLE, SECONDS, module.carry_out, lambda scale: [])


_ALL = (
    measured("fig-toy", toy),
    measured("theory", theory),
    grid(
        "tab-cifar10",
        "SGD, SAM, SAMPa-0, SAMPa-0.2 and SAMPa-0.2 with twice the epochs on CIFAR-10",
        grids.cifar10,
        ("clean",),
        5,
        paper="weeks on two GPUs",
        cpu="40 minutes",
    ),
    grid(
        "tab-cifar100",
        "the same on CIFAR-100",
        grids.cifar100,
        ("clean",),
        5,
        paper="weeks on two GPUs",
        cpu="40 minutes",
    ),
    grid(
        "tab-imagenet",
        "SAM and SAMPa-0.2 on ImageNet-1K, top-1 and top-5",
        grids.imagenet,
        ("clean",),
        3,
        paper="weeks on two GPUs",
        cpu="5 minutes",
    ),
    grid(
        "tab-vit",
        "fine-tuning ViT-B/16: SAM and SAMPa-0.2",
        grids.vit,
        (),
        3,
        paper="a day on two GPUs",
        cpu="30 minutes",
    ),
    grid(
        "tab-glue",
        "fine-tuning BERT on GLUE: AdamW, SAM, SAMPa-0, SAMPa-0.1",
        grids.glue,
        (),
        3,
        paper="days on two GPUs",
        cpu="30 minutes",
    ),
    grid(
        "tab-noise",
        "label noise from 0 to 80 %: SGD, SAM, SAMPa-0, SAMPa-0.2",
        grids.noise,
        ("noise", "noise80"),
        5,
        paper="weeks on two GPUs",
        cpu="40 minutes",
    ),
    grid(
        "tab-incorporation",
        "mSAM, ASAM, SAM-ON, VaSSO and BiSAM, each alone and with SAMPa",
        grids.incorporation,
        ("noise",),
        3,
        paper="days on two GPUs",
        cpu="15 minutes",
    ),
    grid(
        "tab-optsam",
        "OptSAM beside SGD and SAM",
        grids.optsam,
        ("clean",),
        3,
        paper="days on one GPU",
        cpu="5 minutes",
    ),
    grid(
        "tab-sam-db",
        "SAM with its two gradients on different batches",
        grids.sam_db,
        ("clean",),
        3,
        paper="days on one GPU",
        cpu="5 minutes",
    ),
    grid(
        "tab-penalty",
        "the gradient penalty beside SAM and SAMPa-0.2",
        grids.penalty,
        ("clean", "noise80"),
        3,
        paper="days on two GPUs",
        cpu="10 minutes",
    ),
    grid(
        "tab-efficiency",
        "accuracy of SAM, SAMPa-0.2, LookSAM, AE-SAM, SAF, MESA and ESAM, and their time",
        grids.efficiency,
        ("noise",),
        3,
        paper="days on two GPUs",
        cpu="10 minutes",
    ),
    grid(
        "fig-lambda",
        "sweep of λ from 0 to 1",
        grids.lambdas,
        ("noise",),
        3,
        paper="weeks on two GPUs",
        cpu="15 minutes",
    ),
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
