"""What the paper's own scale needs, looked at before the first of many GPU hours."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from sampa.catalog import ALIASES, METHODS
from sampa.cost import measure
from sampa.lab.data.glue import load_glue
from sampa.lab.models import build
from sampa.lab.reproduce.core_time import TRAINING_SAMPLES
from sampa.lab.reproduce.plan import Experiment
from sampa.lab.reproduce.request import Request
from sampa.lab.results.paper import published
from sampa.lab.training.hyperparameters import epochs_of
from sampa.lab.training.network import BELOW_DATA
from sampa.lab.training.recipes import find_recipe
from sampa.lab.training.run import Run
from sampa.lab.training.tasks import load_data

CLASSES = {"cifar100": 100, "imagenet": 1000}
TOKENS = 128


class NotReady(Exception):
    """Something is missing for an experiment at the paper's scale."""


def require_ready(experiment: Experiment, request: Request) -> None:
    """Look for GPUs and data before the first job.

    Raises:
        NotReady: With the list of what is missing, and the time that the runs would take.
    """
    if request.scale != "paper" or experiment.paper_time == experiment.measuring_time:
        return  # made for this machine, or the same everywhere
    runs, seeds = experiment.runs("paper"), request.seeds or experiment.seeds
    lines = [*_missing_devices(request.devices), *_missing_data(runs, request)]
    if not lines:
        return
    hours = gpu_hours(runs) * seeds
    took = (
        f"\nIts {len(runs) * seeds} runs would take about {hours:,.0f} GPU hours (estimated from "
        "the paper's time of an epoch of ResNet-56, by counted operations); --scale cpu is made "
        "for this machine"
        if runs
        else ""
    )
    listed = "\n".join(f"  - {line}" for line in lines)
    raise NotReady(f"the paper's scale needs what is missing here:\n{listed}{took}")


def _missing_devices(needed: int) -> list[str]:
    found = torch.accelerator.device_count() if torch.accelerator.is_available() else 0
    if found >= needed:
        return []
    return [f"{needed} GPU{'s' if needed > 1 else ''}: torch {torch.__version__} finds {found}"]


def _missing_data(runs: Iterable[Run], request: Request) -> list[str]:
    """What is not found, each once."""
    specs = {(run.data.name, run.data.human_labels): run for run in runs}
    found: dict[str, None] = {}
    for run in specs.values():
        try:
            _loader(run, request)()
        except FileNotFoundError as error:
            found[str(error).split("\n")[0].split("; looked for")[0]] = None
    return list(found)


def _loader(run: Run, request: Request) -> Callable[[], object]:
    if run.data.name.startswith("glue/"):
        task = run.data.name.removeprefix("glue/")
        return lambda: load_glue(request.data_dir, task)
    return lambda: load_data(run, request.data_dir)


# ---- time ------------------------------------------------------------------------------------


def gpu_hours(runs: Iterable[Run]) -> float:
    """Of one seed, as if every network did as many operations a second as ResNet-56 in the paper.

    GPU hours, not hours: what two GPUs do at once counts twice.
    """
    whole = 0.0
    for run in runs:
        share = (1 - run.data.validation) * epochs_of(run)
        whole += operations(run) * TRAINING_SAMPLES[run.data.name] * share * gradients(run)
    resnet = replace(find_recipe("cifar10-resnet56"), method="sam")
    seconds = published("tab-efficiency").values["Time/Epoch (s)"]["SAM"].mean
    speed = operations(resnet) * TRAINING_SAMPLES["cifar10"] * gradients(resnet) / seconds
    return whole / speed / 3600


def gradients(run: Run) -> float:
    """Of a step, counted by running the method."""
    name = ALIASES.get(run.method, run.method)
    known = name if name in METHODS else name.split("-")[0]  # sampa-0.3 costs what sampa does
    return measure(known, METHODS[known]).probes


def operations(run: Run) -> float:
    """Of a network for one sample, forward, counted without computing anything."""
    options = {k: v for k, v in run.model.options.items() if k not in ("path", BELOW_DATA)}
    options["num_classes"] = CLASSES.get(run.data.name, 10)
    side = run.data.upscale or (224 if run.data.name == "imagenet" else 32)
    is_text = run.data.name.startswith("glue/")
    shape = (1, run.data.size or TOKENS) if is_text else (1, 3, side, side)
    return _operations(run.model.name, tuple(sorted(options.items())), shape)


@cache
def _operations(
    network: str, options: tuple[tuple[str, Any], ...], shape: tuple[int, ...]
) -> float:
    """Operations for one sample of a shape, an image or tokens."""
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        model = build(network, **dict(options)).eval()
        model(torch.zeros(shape, dtype=torch.long if len(shape) == 2 else torch.float32))
    return float(counter.get_total_flops())
