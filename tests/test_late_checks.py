"""Updates that the device decides on: a bad gradient changes nothing, soon or late noticed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

import sampa
from sampa.execution.guarded import honors_found_inf
from tests.problems import Batch, cross_entropy_of, flat, tiny_mlp, vector_batches

Bases = dict[str, Callable[[Iterable[Tensor]], Optimizer]]
FUSED: Bases = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, fused=True),
    "sgd-momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, fused=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, fused=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "adamw-amsgrad": lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True, fused=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01, fused=True),
}
METHODS: dict[str, Callable[..., sampa.SharpnessAware]] = {
    "base": sampa.Base,
    "sam": sampa.SAM,
    "sampa": sampa.SAMPa,
    "vasso": sampa.VaSSO,
    "looksam": lambda base, **options: sampa.LookSAM(base, k=2, **options),
    "wsam": sampa.WSAM,
}
BATCHES = vector_batches(8)


def scaled_loss(model: nn.Module, factor: float) -> Callable[[Batch], Tensor]:
    return lambda batch: cross_entropy_of(model)(batch) * factor


def run(
    method: str, base: str, bad: int | None = None, **options: Any
) -> tuple[list[Tensor], sampa.SharpnessAware]:
    """The weights after each step, of which number `bad` has an infinite gradient."""
    model = tiny_mlp()
    optimizer = METHODS[method](FUSED[base](model.parameters()), seed=1, **options)
    points: list[Tensor] = []
    for step in range(8):
        optimizer.step(scaled_loss(model, math.inf if step == bad else 1.0), BATCHES[step])
        points.append(flat(model))
    return points, optimizer


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("base", FUSED)
def test_late_checks_give_the_same_weights_as_prompt_ones(method: str, base: str) -> None:
    (late, by_device), (prompt, by_host) = run(method, base, checks="late"), run(method, base)
    assert all(map(torch.equal, late, prompt))
    assert by_device.last == by_host.last


@pytest.mark.parametrize("bad", [0, 1, 2, 5])
@pytest.mark.parametrize("base", FUSED)
@pytest.mark.parametrize("checks", ["now", "late"])
def test_a_bad_gradient_changes_no_weight_and_training_goes_on(
    base: str, bad: int, checks: str
) -> None:
    points, optimizer = run("sam", base, bad=bad, checks=checks)
    before = points[bad - 1] if bad else flat(tiny_mlp())
    assert torch.equal(points[bad], before)
    assert torch.isfinite(points[-1]).all()
    assert not torch.equal(points[-1], points[bad])
    assert optimizer.last is not None
    # With late checks the next step is dropped too: SAM's state could carry what was spoiled.
    assert optimizer.last.skips == (2 if checks == "late" else 1)
    assert optimizer.last.step == 8 - optimizer.last.skips


@pytest.mark.parametrize("base", FUSED)
@pytest.mark.parametrize("bad", [0, 1, 3])
def test_a_skipped_step_leaves_the_base_as_if_it_had_not_been(base: str, bad: int) -> None:
    """The run goes on as one that never saw the two batches of a late skip."""
    points, _ = run("sam", base, bad=bad, checks="late")
    model = tiny_mlp()
    optimizer = sampa.SAM(FUSED[base](model.parameters()), seed=1)
    for step in range(8):
        if step not in (bad, bad + 1):
            optimizer.step(cross_entropy_of(model), BATCHES[step])
    assert torch.equal(points[-1], flat(model))


@pytest.mark.parametrize("method", ["sampa", "vasso", "looksam"])
@pytest.mark.parametrize("bad", [0, 1, 4])
def test_what_a_bad_gradient_left_in_the_state_never_reaches_the_weights(
    method: str, bad: int
) -> None:
    points, optimizer = run(method, "sgd-momentum", bad=bad, checks="late")
    assert all(torch.isfinite(x).all() for x in points)
    assert not torch.equal(points[-1], points[bad])
    assert all(
        torch.isfinite(t).all()
        for state in optimizer.base.state.values()
        for t in state.values()
        if isinstance(t, Tensor)
    )


def test_batch_norm_does_not_count_a_pass_at_spoiled_weights() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).double()
    base = FUSED["sgd"](model.parameters())
    optimizer = sampa.SAMPa(base, executor=sampa.Serial(model), checks="late")
    for step in range(6):
        spoil = math.nan if step == 2 else 1.0
        optimizer.step(lambda x, s=spoil: model(x).square().mean() * s, torch.randn(5, 4).double())
    assert all(torch.isfinite(b).all() for b in model.buffers())


def test_looking_at_the_last_step_tells_a_skip_at_once() -> None:
    model = tiny_mlp()
    optimizer = sampa.SAMPa(FUSED["sgd"](model.parameters()), checks="late")
    optimizer.step(cross_entropy_of(model), BATCHES[0])
    optimizer.step(scaled_loss(model, math.nan), BATCHES[1])
    assert optimizer.last is not None
    assert (optimizer.last.skipped, optimizer.last.skips, optimizer.last.step) == (True, 1, 0)
    optimizer.step(cross_entropy_of(model), BATCHES[2])
    optimizer.step(cross_entropy_of(model), BATCHES[3])
    assert (optimizer.last.skipped, optimizer.last.skips, optimizer.last.step) == (False, 1, 1)


def test_a_state_that_is_saved_after_a_bad_step_is_that_of_the_step_before() -> None:
    model = tiny_mlp()
    optimizer = sampa.SAMPa(FUSED["sgd"](model.parameters()), checks="late")
    optimizer.step(scaled_loss(model, math.nan), BATCHES[0])
    state = optimizer.state_dict()["sampa"]
    assert state["progress"]["skips"] == 1
    assert state["method_state"]["g"] is None


def test_too_many_late_skips_are_an_error() -> None:
    model = tiny_mlp()
    optimizer = sampa.Base(FUSED["sgd"](model.parameters()), checks="late", max_skips=2)
    for batch in BATCHES[:2]:
        optimizer.step(scaled_loss(model, math.nan), batch)
    with pytest.raises(RuntimeError, match="2 steps in a row had a gradient that is not finite"):
        optimizer.step(scaled_loss(model, math.nan), BATCHES[2])


@pytest.mark.parametrize(
    "base",
    [
        lambda p: torch.optim.SGD(p, lr=0.1),
        lambda p: torch.optim.AdamW(p, lr=0.1, foreach=True),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.5, fused=True),
    ],
    ids=["foreach-sgd", "foreach-adamw", "dampening"],
)
def test_late_checks_refuse_a_base_that_keeps_something_on_the_host(base: Any) -> None:
    with pytest.raises(ValueError, match=r"checks='late' needs a base optimizer.*fused=True"):
        sampa.SAM(base(tiny_mlp().parameters()), checks="late")


def test_late_checks_refuse_a_method_that_writes_records_before_the_host_knows() -> None:
    """SAF's logits of a bad step would stay in its records."""
    model = tiny_mlp()
    with pytest.raises(ValueError, match=r"checks='late'.*got SAFMethod.*write checks='now'"):
        sampa.SAF(FUSED["sgd"](model.parameters()), checks="late")
    assert sampa.SAF(FUSED["sgd"](model.parameters()), checks="now").last is None


def test_fused_bases_take_part_in_the_decision() -> None:
    assert all(honors_found_inf(make(tiny_mlp().parameters())) for make in FUSED.values())
