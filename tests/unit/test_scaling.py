"""One decision about the loss scale for all probes of a step."""

from __future__ import annotations

import pytest
import torch
from torch.amp.grad_scaler import GradScaler

from sampa.execution import loss_scaling as scaling

CPU = torch.device("cpu")


def used_scaler(**options: float) -> GradScaler:
    """A scaler after its first loss: it makes its tensors then."""
    scaler = GradScaler("cpu", **{"init_scale": 1024.0, **options})  # type: ignore[arg-type]
    scaler.scale(torch.ones(1))
    return scaler


def test_overflow_lowers_the_scale_once() -> None:
    scaler = used_scaler(backoff_factor=0.5)
    scaling.report(scaler, torch.tensor(True))
    assert scaler.get_scale() == 512.0


def test_a_good_step_keeps_the_scale() -> None:
    scaler = used_scaler()
    scaling.report(scaler, torch.tensor(False))
    assert scaler.get_scale() == 1024.0


def test_enough_good_steps_raise_the_scale() -> None:
    scaler = used_scaler(growth_interval=3, growth_factor=2.0)
    scales = []
    for _ in range(3):
        scaling.report(scaler, torch.tensor(False))
        scales.append(scaler.get_scale())
    assert scales == [1024.0, 1024.0, 2048.0]


def test_overflow_starts_the_count_of_good_steps_again() -> None:
    scaler = used_scaler(growth_interval=2)
    for overflow in (False, True, False):
        scaling.report(scaler, torch.tensor(overflow))
    assert scaler.get_scale() == 512.0


@pytest.mark.parametrize("overflow", [False, True])
def test_a_disabled_scaler_is_left_alone(overflow: bool) -> None:
    scaler = GradScaler("cpu", enabled=False)
    scaling.report(scaler, torch.tensor(overflow))
    assert scaler.get_scale() == 1.0
