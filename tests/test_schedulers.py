"""Learning-rate schedulers of torch, attached to the wrapper or to the base."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import Optimizer

import sampa
from tests.problems import (
    METHODS,
    cross_entropy_of,
    flat,
    sgd,
    tiny_mlp,
    trajectory,
    vector_batches,
)

BATCHES = vector_batches(8)


def built(name: str) -> tuple[nn.Module, sampa.SharpnessAware]:
    model = tiny_mlp()
    return model, METHODS[name](sgd(model))


def steps(model: nn.Module, optimizer: sampa.SharpnessAware, first: int, last: int) -> None:
    trajectory(optimizer, model, BATCHES[first:last], cross_entropy_of(model))


lr = torch.optim.lr_scheduler
SCHEDULERS: dict[str, Callable[[Optimizer], Any]] = {
    "StepLR": lambda o: lr.StepLR(o, 2),
    "MultiStepLR": lambda o: lr.MultiStepLR(o, [2, 4]),
    "LambdaLR": lambda o: lr.LambdaLR(o, lambda t: 0.9**t),
    "MultiplicativeLR": lambda o: lr.MultiplicativeLR(o, lambda t: 0.9),
    "ConstantLR": lambda o: lr.ConstantLR(o, 0.5, 3),
    "LinearLR": lambda o: lr.LinearLR(o, 0.5, 1.0, 4),
    "ExponentialLR": lambda o: lr.ExponentialLR(o, 0.9),
    "PolynomialLR": lambda o: lr.PolynomialLR(o, 6),
    "CosineAnnealingLR": lambda o: lr.CosineAnnealingLR(o, 6),
    "CosineAnnealingWarmRestarts": lambda o: lr.CosineAnnealingWarmRestarts(o, 2),
    "CyclicLR": lambda o: lr.CyclicLR(o, 0.01, 0.1, 2, cycle_momentum=True),
    "OneCycleLR": lambda o: lr.OneCycleLR(o, 0.1, total_steps=9),
    "SequentialLR": lambda o: lr.SequentialLR(
        o, [lr.LinearLR(o, 0.5, 1.0, 2), lr.CosineAnnealingLR(o, 4)], [2]
    ),
    "ChainedScheduler": lambda o: lr.ChainedScheduler(
        [lr.ConstantLR(o, 0.5, 3), lr.ExponentialLR(o, 0.9)], optimizer=o
    ),
    "ReduceLROnPlateau": lambda o: lr.ReduceLROnPlateau(o, patience=1),
    "SWALR": lambda o: torch.optim.swa_utils.SWALR(o, 0.05, anneal_epochs=3),
}


def epochs(schedule: str, attach_to: str, method: str) -> tuple[list[float], torch.Tensor]:
    """Four epochs of two batches: the learning rates seen, and where the weights end."""
    model, optimizer = built(method)
    scheduler = SCHEDULERS[schedule](optimizer if attach_to == "wrapper" else optimizer.base)
    rates = []
    for epoch in range(4):
        steps(model, optimizer, 2 * epoch, 2 * epoch + 2)
        scheduler.step(*([1.0] if schedule == "ReduceLROnPlateau" else []))
        rates.append(optimizer.param_groups[0]["lr"])
    return rates, flat(model)


@pytest.mark.parametrize("attach_to", ["wrapper", "base"])
@pytest.mark.parametrize("schedule", SCHEDULERS)
def test_schedulers_do_what_they_do_to_a_plain_optimizer(schedule: str, attach_to: str) -> None:
    """Warnings are errors here, so this also says that torch sees the steps in the right order."""
    base = sgd(tiny_mlp())
    plain = SCHEDULERS[schedule](base)
    expected = []
    for _ in range(4):
        base.step()
        plain.step(*([1.0] if schedule == "ReduceLROnPlateau" else []))
        expected.append(base.param_groups[0]["lr"])
    rates, _ = epochs(schedule, attach_to, "sampa-0.2")
    assert rates == expected


@pytest.mark.parametrize("schedule", ["OneCycleLR", "CosineAnnealingLR"])
def test_a_scheduler_on_wrapper_or_base_trains_alike(schedule: str) -> None:
    on_wrapper, on_base = (epochs(schedule, where, "sampa-0.2")[1] for where in ("wrapper", "base"))
    assert torch.equal(on_wrapper, on_base)


@pytest.mark.parametrize("method", METHODS)
def test_a_scheduler_on_the_wrapper_may_step_after_every_batch(method: str) -> None:
    """Also after the first batch, on which some methods make no update."""
    model, optimizer = built(method)
    scheduler = lr.OneCycleLR(optimizer, 0.1, total_steps=9)
    for i in range(3):
        steps(model, optimizer, i, i + 1)
        scheduler.step()
    assert scheduler.last_epoch == 3
