"""Autocast and loss scaling: one scaler for all probes of a step."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler

import sampa
from tests.problems import (
    METHODS,
    Batch,
    cross_entropy_of,
    flat,
    same_bits,
    sgd,
    tiny_mlp,
    trajectory,
    vector_batches,
)

BATCHES = vector_batches(5, dtype=torch.float32)
TWO_PROBES = ["sam", "sampa-0.2"]


def scaler(scale: float = 2.0**10, **options: Any) -> GradScaler:
    return GradScaler("cpu", init_scale=scale, **options)


def autocast_loss(model: nn.Module, dtype: torch.dtype) -> Callable[[Batch], Tensor]:
    loss_fn = cross_entropy_of(model)

    def loss(batch: Batch) -> Tensor:
        with torch.autocast("cpu", dtype):
            return loss_fn(batch)

    return loss


def net() -> nn.Module:
    return tiny_mlp(dtype=torch.float32)


@pytest.mark.parametrize("method", METHODS)
def test_a_power_of_two_as_scale_changes_nothing(method: str) -> None:
    """In float32 it only shifts exponents, so the weights agree bit for bit."""
    ends = []
    for scaling in (None, scaler()):
        model = net()
        optimizer = METHODS[method](sgd(model), scaler=scaling, seed=0)
        trajectory(optimizer, model, BATCHES, cross_entropy_of(model))
        ends.append((flat(model), optimizer.base.state_dict()))
    assert same_bits(*ends)


@pytest.mark.parametrize("method", TWO_PROBES)
def test_held_quantities_do_not_depend_on_a_scale_that_changes(method: str) -> None:
    ends = []
    for scaling in (None, scaler(growth_interval=1)):
        model = net()
        optimizer = METHODS[method](sgd(model), scaler=scaling)
        trajectory(optimizer, model, BATCHES, cross_entropy_of(model))
        ends.append(flat(model))
    assert torch.equal(*ends)


@pytest.mark.parametrize("method", METHODS)
def test_the_scale_grows_once_a_step_however_many_probes(method: str) -> None:
    model, scaling = net(), scaler(4.0, growth_interval=2)
    optimizer = METHODS[method](sgd(model), scaler=scaling)
    for batch in BATCHES[:4]:
        optimizer.step(cross_entropy_of(model), batch)
    assert scaling.get_scale() == 16.0


def test_the_returned_loss_is_not_scaled() -> None:
    model, twin = net(), net()
    loss = sampa.SAM(sgd(model), scaler=scaler()).step(cross_entropy_of(model), BATCHES[0])
    assert torch.equal(loss, cross_entropy_of(twin)(BATCHES[0]).detach())


def test_recorded_norms_are_not_scaled() -> None:
    norms = []
    for scaling in (None, scaler()):
        model = net()
        optimizer = sampa.SAM(sgd(model), scaler=scaling)
        optimizer.step(cross_entropy_of(model), BATCHES[0])
        assert optimizer.last is not None
        norms.append(optimizer.last.norms)
    assert norms[0] == norms[1]


def overflowing(model: nn.Module, in_pass: int) -> Callable[[Batch], Tensor]:
    """fp16 autocast whose gradient exceeds 65504, fp16's largest number, in one of its calls."""
    loss_fn = autocast_loss(model, torch.float16)
    calls = 0

    def loss(batch: Batch) -> Tensor:
        nonlocal calls
        calls += 1
        value = loss_fn(batch)
        return value * 1e6 if calls - 1 == in_pass else value

    return loss


@pytest.mark.parametrize("in_pass", [0, 1])
@pytest.mark.parametrize("method", TWO_PROBES)
def test_overflow_in_either_probe_skips_the_step_and_lowers_the_scale_once(
    method: str, in_pass: int
) -> None:
    model, scaling = net(), scaler()
    optimizer = METHODS[method](sgd(model), scaler=scaling)
    for batch in BATCHES[:3]:
        optimizer.step(autocast_loss(model, torch.float16), batch)
    before = flat(model), copy.deepcopy(optimizer.base.state_dict())
    optimizer.step(overflowing(model, in_pass), BATCHES[3])
    assert same_bits((flat(model), optimizer.base.state_dict()), before)
    assert scaling.get_scale() == 2.0**9
    assert optimizer.last is not None
    assert (optimizer.last.skipped, optimizer.last.skips) == (True, 1)


@pytest.mark.parametrize("method", METHODS)
def test_a_scale_that_is_too_large_comes_down_until_training_starts(method: str) -> None:
    model, scaling = net(), scaler(2.0**24)
    optimizer = METHODS[method](sgd(model), scaler=scaling)
    losses = [
        optimizer.step(autocast_loss(model, torch.float16), BATCHES[0]).item() for _ in range(40)
    ]
    assert optimizer.last is not None
    assert optimizer.last.skips > 0
    assert optimizer.last.step > 0
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize("method", METHODS)
def test_bfloat16_autocast_trains_without_a_scaler(method: str) -> None:
    model = net()
    optimizer = METHODS[method](sgd(model))
    losses = [
        optimizer.step(autocast_loss(model, torch.bfloat16), BATCHES[0]).item() for _ in range(30)
    ]
    assert losses[-1] < 0.9 * losses[0]
    assert all(p.dtype == torch.float32 for p in model.parameters())


@pytest.mark.parametrize("method", METHODS)
def test_weights_in_bfloat16_train(method: str) -> None:
    model = tiny_mlp(dtype=torch.bfloat16)
    batches = vector_batches(1, dtype=torch.bfloat16)
    optimizer = METHODS[method](sgd(model))
    losses = [optimizer.step(cross_entropy_of(model), batches[0]).item() for _ in range(30)]
    assert losses[-1] < 0.9 * losses[0]


def test_accumulation_and_scaling_go_together() -> None:
    ends = []
    together: dict[str, Any] = {"accumulate": 3, "scaler": scaler()}
    for options in ({}, together):
        model = tiny_mlp()
        optimizer = sampa.SAMPa(sgd(model), **options)
        trajectory(optimizer, model, vector_batches(4), cross_entropy_of(model))
        ends.append(flat(model))
    # float64, sums in another order.
    torch.testing.assert_close(ends[1], ends[0], rtol=0, atol=1e-13)


def test_a_disabled_scaler_changes_nothing() -> None:
    ends = []
    for scaling in (None, GradScaler("cpu", enabled=False)):
        model = net()
        optimizer = sampa.SAMPa(sgd(model), scaler=scaling)
        trajectory(optimizer, model, BATCHES, cross_entropy_of(model))
        ends.append(flat(model))
    assert torch.equal(*ends)


def refused(model: nn.Module, call: Callable[[sampa.SharpnessAware], Any]) -> None:
    """The message shows the two lines to write, and the weights stay."""
    optimizer = sampa.SAM(sgd(model))
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    before = flat(model)
    message = r"(?s)(?=.*pass scaler=)step (needs|cannot).*loss = optimizer\.step\(loss_fn, batch\)"
    with pytest.raises(RuntimeError, match=message):
        call(optimizer)
    assert torch.equal(flat(model), before)


def test_step_without_arguments_is_refused() -> None:
    refused(net(), lambda optimizer: optimizer.step())


def used_scaler() -> GradScaler:
    scaling = scaler()
    scaling.scale(torch.ones(1))
    return scaling


def test_a_scalers_own_step_is_refused() -> None:
    refused(net(), lambda optimizer: used_scaler().step(optimizer))


def test_a_scalers_own_step_with_a_positional_closure_is_refused() -> None:
    """torch passes it on, and the weights would move by the scaled gradient."""
    refused(net(), lambda optimizer: used_scaler().step(optimizer, lambda: torch.tensor(math.pi)))
