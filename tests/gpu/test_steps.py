"""Steps on one accelerator: as on the CPU, for every method; how often they wait; compiled."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sampa
from sampa.samples import map_tensors
from tests.gpu.devices import ONE_DEVICE, deterministic, waits
from tests.marks import rest_is_slow
from tests.problems import cross_entropy_of, flat, image_batches, small_net
from tests.variants import ACTIVE, PLAN, build, loss_of, normalized_mlp

TOLERANCE = 1e-9  # in float64: sums have another order on another device


def weights_after(name: str, device: str) -> list[Tensor]:
    """The weights after every step of three epochs."""
    model = normalized_mlp().to(device)
    optimizer = build(name, model)
    found: list[Tensor] = []
    for epoch, batch in PLAN:
        optimizer.set_epoch(epoch)
        optimizer.step(loss_of(model), map_tensors(lambda t: t.to(device), batch))
        found.append(flat(model).cpu())
    return found


@pytest.mark.parametrize("device", ONE_DEVICE)
@pytest.mark.parametrize("name", rest_is_slow(ACTIVE, "sam", "sampa", "esam"))
def test_every_method_steps_as_on_the_cpu(name: str, device: str) -> None:
    torch.testing.assert_close(
        weights_after(name, device), weights_after(name, "cpu"), rtol=0, atol=TOLERANCE
    )


# ---- how often the host waits ----------------------------------------------------------------


@pytest.mark.parametrize("device", ONE_DEVICE)
def test_reading_a_number_is_a_wait_and_arithmetic_is_not(device: str) -> None:
    x = torch.ones(4, device=device)
    assert waits(lambda: (x + x).sum(), device) == 0
    assert waits(lambda: x.sum().item(), device) == 1
    assert waits(lambda: [float(t) for t in x], device) == 4


def fused_sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, fused=True)


def fused_adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)


def waits_of_a_step(make_base: Any, make: Any, device: str, **options: Any) -> int:
    """In a step after the first ones, which may set up what later ones use."""
    model = small_net().to(device)
    optimizer = make(make_base(model), executor=sampa.Serial(model), **options)
    loss_fn = cross_entropy_of(model)
    batches = [map_tensors(lambda t: t.to(device), b) for b in image_batches(5)]
    for batch in batches[:-1]:
        optimizer.step(loss_fn, batch)
    return waits(lambda: optimizer.step(loss_fn, batches[-1]), device)


@pytest.mark.gpu
@pytest.mark.parametrize("make", [sampa.SAM, sampa.SAMPa, sampa.ASAM, sampa.VaSSO, sampa.GSAM])
@pytest.mark.parametrize("make_base", [fused_sgd, fused_adamw])
def test_a_step_waits_at_most_once(make_base: Any, make: Any) -> None:
    assert waits_of_a_step(make_base, make, "cuda") <= 1


@pytest.mark.gpu
@pytest.mark.parametrize("make", [sampa.SAM, sampa.SAMPa, sampa.ASAM, sampa.VaSSO, sampa.GSAM])
@pytest.mark.parametrize("make_base", [fused_sgd, fused_adamw])
def test_a_step_that_is_checked_late_never_waits(make_base: Any, make: Any) -> None:
    assert waits_of_a_step(make_base, make, "cuda", checks="late") == 0


@pytest.mark.gpu
def test_nothing_but_the_check_of_a_step_waits() -> None:
    """The same with torch's own word: what waits raises an error."""
    model = small_net().to("cuda")
    optimizer = sampa.SAMPa(fused_sgd(model), checks="late")
    batches = [map_tensors(lambda t: t.to("cuda"), b) for b in image_batches(6)]
    for batch in batches[:3]:
        optimizer.step(cross_entropy_of(model), batch)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for batch in batches[3:]:
            optimizer.step(cross_entropy_of(model), batch)
    finally:
        torch.cuda.set_sync_debug_mode("default")


# ---- a compiled model ------------------------------------------------------------------------

# On an accelerator this mode records CUDA graphs, whose memory the next pass overwrites.
COMPILED: dict[str, dict[str, Any]] = {
    "cpu": {"backend": "eager"},
    "cuda": {"mode": "reduce-overhead"},
}


@pytest.mark.parametrize("device", ONE_DEVICE)
@pytest.mark.parametrize("make", [sampa.SAM, sampa.SAMPa, partial(sampa.SAMPa, lam=0.0)])
def test_a_compiled_model_steps_as_a_plain_one(make: Any, device: str) -> None:
    """In float32, eight steps: SAMPa keeps a gradient from one to the next."""
    found: list[Tensor] = []
    for is_compiled in (False, True):
        model = small_net(dropout=0.0).to(device)
        network: Any = torch.compile(model, **COMPILED[device]) if is_compiled else model
        base = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        optimizer = make(base, executor=sampa.Serial(model), seed=0)
        with deterministic(device):
            for batch in image_batches(8):
                moved = map_tensors(lambda t: t.to(device), batch)
                optimizer.step(cross_entropy_of(network), moved)
        found.append(flat(model).cpu())
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=1e-4)
