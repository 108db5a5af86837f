"""Where users surprise an optimizer: autocast around it, other dtypes, odd bases, bad batches."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Literal

import pytest
import torch
from torch import Tensor, nn

import sampa
from tests.problems import (
    METHODS,
    Batch,
    cross_entropy_of,
    flat,
    image_batches,
    same_bits,
    sgd,
    small_net,
    through_a_file,
    tiny_mlp,
    trajectory,
    vector_batches,
    watched,
)

BATCHES = vector_batches(6)


# group.get("rho") is Adadelta's own option (its decay, 0.9)
def test_the_radius_is_not_mistaken_for_adadeltas_rho() -> None:
    model = tiny_mlp()
    loss_fn, points = watched(model, cross_entropy_of(model))
    sampa.SAM(torch.optim.Adadelta(model.parameters()), rho=0.05).step(loss_fn, BATCHES[0])
    assert (points[1] - points[0]).norm().item() == pytest.approx(0.05, rel=1e-9)


# autocast caches the cast weights until its outermost block ends
@pytest.mark.parametrize("method", ["sam", "sampa-0.2"])
def test_autocast_around_step_is_autocast_inside_loss_fn(method: str) -> None:
    def bfloat16() -> torch.autocast:
        return torch.autocast("cpu", torch.bfloat16)

    ends = []
    for outside in (True, False):
        model = tiny_mlp(dtype=torch.float32)
        optimizer = METHODS[method](sgd(model), rho=0.5)
        plain = cross_entropy_of(model)

        def inside(batch: Batch, plain: Callable[[Batch], Tensor] = plain) -> Tensor:
            with bfloat16():
                return plain(batch)

        with bfloat16() if outside else nullcontext():
            for batch in vector_batches(3, dtype=torch.float32):
                optimizer.step(plain if outside else inside, batch)
        ends.append(flat(model))
    assert torch.equal(*ends)


# bfloat16 beside float64
@pytest.mark.parametrize("method", METHODS)
def test_weights_of_different_precision_train_together(method: str) -> None:
    model = nn.ParameterList(
        nn.Parameter(torch.ones(3, dtype=t)) for t in (torch.float32, torch.bfloat16, torch.float64)
    )
    optimizer = METHODS[method](torch.optim.SGD(model.parameters(), lr=0.2))

    def loss_fn(x: Tensor) -> Tensor:
        return torch.stack([(x * p).double().square().mean() for p in model]).sum()

    losses = [optimizer.step(loss_fn, torch.ones(3)).item() for _ in range(10)]
    assert losses[-1] < 0.5 * losses[0]
    assert [p.dtype for p in model] == [torch.float32, torch.bfloat16, torch.float64]


# a scheduler on the base, stepped per batch, warns after SAMPa's first call
@pytest.mark.parametrize("method", METHODS)
def test_a_scheduler_on_the_base_may_step_after_every_batch(method: str) -> None:
    model = tiny_mlp()
    optimizer = METHODS[method](sgd(model))
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer.base, 0.1, total_steps=9)
    for batch in BATCHES[:3]:
        optimizer.step(cross_entropy_of(model), batch)
        scheduler.step()
    assert scheduler.last_epoch == 3


# the scaler is loaded last and may refuse
def test_a_state_saved_with_a_disabled_scaler_is_loaded_or_nothing_changes() -> None:
    model = tiny_mlp()
    saved = sampa.SAMPa(sgd(model), scaler=torch.amp.GradScaler("cpu", enabled=False))
    trajectory(saved, model, BATCHES[:3], cross_entropy_of(model))
    optimizer = sampa.SAMPa(sgd(model), scaler=torch.amp.GradScaler("cpu"))
    before = copy.deepcopy(optimizer.state_dict())
    try:
        optimizer.load_state_dict(through_a_file(saved.state_dict()))
    except (RuntimeError, ValueError):
        assert same_bits(optimizer.state_dict(), before)


# at lam = 0 an entry absent in the first vector comes from the second, times 0
class Sometimes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.ones(3, dtype=torch.float64))
        self.b = nn.Parameter(torch.ones(2, dtype=torch.float64))

    def forward(self, batch: Tensor) -> Tensor:
        loss = (batch[0] * self.a).square().sum()
        return loss + (self.b**3).sum() if batch[1] > 0 else loss


def test_sampa_zero_leaves_a_parameter_alone_that_the_held_batch_does_not_use() -> None:
    model = Sometimes()
    optimizer = sampa.SAMPa(sgd(model), rho=0.0, lam=0.0)
    for used in (0.0, 1.0):
        optimizer.step(model, torch.tensor([0.5, used], dtype=torch.float64))
    assert torch.equal(model.b, torch.ones(2, dtype=torch.float64))


# the bad batch is held and spoils the next step too
@pytest.mark.parametrize("form", ["next", "previous"])
def test_one_bad_batch_costs_sam_db_one_step(form: Literal["next", "previous"]) -> None:
    model = tiny_mlp()
    optimizer = sampa.SAMdb(sgd(model), perturb_on=form)
    bad = BATCHES[2][0] * math.nan, BATCHES[2][1]
    for batch in [*BATCHES[:2], bad, *BATCHES[3:]]:
        optimizer.step(cross_entropy_of(model), batch)
    assert optimizer.last is not None
    assert optimizer.last.skips == 1


# backward inside loss_fn is not told
def test_backward_inside_loss_fn_is_refused_with_a_reason() -> None:
    model = tiny_mlp()

    def loss_fn(batch: Batch) -> Tensor:
        loss = cross_entropy_of(model)(batch)
        loss.backward()
        return loss

    with pytest.raises((RuntimeError, ValueError), match="loss_fn"):
        sampa.SAM(sgd(model)).step(loss_fn, BATCHES[0])


# silently doubled gradient where the graph keeps nothing
def test_backward_inside_loss_fn_does_not_double_the_gradient() -> None:
    p = nn.Parameter(torch.ones(2))
    optimizer = sampa.Base(torch.optim.SGD([p], lr=0.1))

    def loss_fn(batch: Tensor) -> Tensor:
        loss = p.sum()
        loss.backward()
        return loss

    with pytest.raises((RuntimeError, ValueError)):
        optimizer.step(loss_fn, torch.ones(1))


# a seed from NumPy
def test_a_seed_from_numpy_is_the_same_seed() -> None:
    import numpy as np

    ends = []
    for seed in (3, np.int64(3)):
        model = small_net()
        optimizer = sampa.SAM(sgd(model), seed=seed)
        optimizer.step(cross_entropy_of(model), next(image_batches(1)))
        through_a_file(optimizer.state_dict())
        ends.append(flat(model))
    assert torch.equal(*ends)
