"""What one step does with the radius, with clipping, and with parameters that take no part."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import sampa
from tests.problems import (
    METHODS,
    cross_entropy_of,
    flat,
    held_gradient,
    sgd,
    tiny_mlp,
    trajectory,
    vector_batches,
    watched,
)

BATCHES = vector_batches(6)


def plain_sgd(model: nn.Module, lr: float = 1.0) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=lr)


def first_perturbation(optimizer: sampa.SharpnessAware, model: nn.Module) -> Tensor:
    loss_fn, points = watched(model, cross_entropy_of(model))
    optimizer.step(loss_fn, BATCHES[0])
    return points[1] - points[0]


# ---- radius --------------------------------------------------------------------------------------


def test_each_group_has_its_own_radius_and_one_norm_is_shared() -> None:
    model = tiny_mlp()
    groups = [
        {"params": list(model[0].parameters()), "rho": 0.0},
        {"params": list(model[2].parameters()), "rho": 0.5},
    ]
    optimizer = sampa.SAM(torch.optim.SGD(groups, lr=0.1), rho=7.0, perturb_eps=0.0)
    gradients = torch.autograd.grad(cross_entropy_of(model)(BATCHES[0]), list(model.parameters()))
    g = torch.cat([t.flatten() for t in gradients])
    size = sum(p.numel() for p in model[0].parameters())
    expected = torch.cat([torch.zeros(size).double(), 0.5 * g[size:] / g.norm()])
    # x + e − x rounds at the size of x, about 1e-16.
    torch.testing.assert_close(first_perturbation(optimizer, model), expected, rtol=0, atol=3e-16)


def test_a_group_without_its_own_radius_takes_the_methods() -> None:
    model, twin = tiny_mlp(), tiny_mlp()
    groups = [{"params": [p]} for p in twin.parameters()]
    expected = first_perturbation(sampa.SAM(plain_sgd(model), rho=0.3), model)
    actual = first_perturbation(sampa.SAM(torch.optim.SGD(groups, lr=1.0), rho=0.3), twin)
    assert torch.equal(actual, expected)


def test_radius_may_be_a_function_of_the_updates_made() -> None:
    model = tiny_mlp()
    loss_fn, points = watched(model, cross_entropy_of(model))
    optimizer = sampa.SAM(sgd(model), rho=lambda t: 0.1 * t, perturb_eps=0.0)
    for batch in BATCHES[:4]:
        optimizer.step(loss_fn, batch)
    lengths = [(b - a).norm().item() for a, b in zip(points[::2], points[1::2], strict=True)]
    assert lengths == pytest.approx([0.0, 0.1, 0.2, 0.3], rel=1e-13)


def test_the_first_update_of_sampa_has_the_radius_of_t_zero() -> None:
    model = tiny_mlp()
    loss_fn, points = watched(model, cross_entropy_of(model))
    optimizer = sampa.SAMPa(sgd(model), rho=lambda t: 0.5 + t, perturb_eps=0.0)
    for batch in BATCHES[:2]:
        optimizer.step(loss_fn, batch)
    x, x_tilde = points.on(BATCHES[0])
    assert (x_tilde - x).norm().item() == pytest.approx(0.5, rel=1e-13)


def test_a_serial_round_evaluates_perturbed_points_last() -> None:
    """The lookahead's copy of the base optimizer's state is then gone before the other gradient."""
    model = tiny_mlp()
    loss_fn, points = watched(model, cross_entropy_of(model))
    optimizer = sampa.SAMPa(sgd(model))
    for batch in BATCHES[:3]:
        optimizer.step(loss_fn, batch)
    order = [next(i for i, b in enumerate(BATCHES) if b is batch) for batch in points.batches]
    assert order == [0, 1, 0, 2, 1]


# ---- clipping ------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["base", "sam", "sampa-0.2", "optgd"])
def test_max_norm_bounds_the_gradient_handed_to_the_base(method: str) -> None:
    model = tiny_mlp()
    optimizer = METHODS[method](plain_sgd(model), max_norm=0.01)
    before = flat(model)
    (after, *_) = trajectory(optimizer, model, BATCHES[:2], cross_entropy_of(model))
    assert (after - before).norm().item() == pytest.approx(0.01, rel=1e-12)


@pytest.mark.parametrize("method", ["base", "sam", "sampa-0.2", "optgd"])
def test_a_smaller_gradient_is_not_touched_by_max_norm(method: str) -> None:
    ends = []
    for max_norm in (None, 1e6):
        model = tiny_mlp()
        optimizer = METHODS[method](plain_sgd(model), max_norm=max_norm)
        ends.append(trajectory(optimizer, model, BATCHES, cross_entropy_of(model))[-1])
    assert torch.equal(*ends)


def test_max_norm_does_not_touch_the_perturbation() -> None:
    model, twin = tiny_mlp(), tiny_mlp()
    clipped = first_perturbation(sampa.SAM(plain_sgd(model), rho=0.3, max_norm=0.01), model)
    assert torch.equal(clipped, first_perturbation(sampa.SAM(plain_sgd(twin), rho=0.3), twin))


def test_max_norm_acts_inside_the_lookahead() -> None:
    model = tiny_mlp()
    loss_fn, points = watched(model, cross_entropy_of(model))
    optimizer = sampa.SAMPa(plain_sgd(model), max_norm=0.01)
    for batch in BATCHES[:2]:
        optimizer.step(loss_fn, batch)
    x, (y,) = points[0], points.on(BATCHES[1])
    assert (y - x).norm().item() == pytest.approx(0.01, rel=1e-12)


def test_the_held_gradient_is_kept_as_it_is() -> None:
    held = []
    for max_norm in (None, 0.01):
        model = tiny_mlp()
        optimizer = sampa.SAMPa(plain_sgd(model), max_norm=max_norm)
        optimizer.step(cross_entropy_of(model), BATCHES[0])
        held.append(held_gradient(optimizer))
    assert torch.equal(*held)


# ---- parameters that take no part ----------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_a_frozen_parameter_stays_and_the_others_train_as_without_it(method: str) -> None:
    model, twin = tiny_mlp(), tiny_mlp()
    for m in (model, twin):
        m[0].weight.requires_grad_(False)
    frozen = model.get_parameter("0.weight").clone()
    trainable = [p for p in twin.parameters() if p.requires_grad]
    whole = METHODS[method](sgd(model), seed=0)
    part = METHODS[method](
        torch.optim.SGD(trainable, lr=0.1, momentum=0.9, weight_decay=0.01), seed=0
    )
    for m, optimizer in ((model, whole), (twin, part)):
        trajectory(optimizer, m, BATCHES, cross_entropy_of(m))
    assert torch.equal(model.get_parameter("0.weight"), frozen)
    assert torch.equal(flat(model), flat(twin))


@pytest.mark.parametrize("method", METHODS)
def test_a_parameter_frozen_in_the_middle_of_training_stays_where_it_was(method: str) -> None:
    """Also where the method remembers a gradient of it."""
    model = tiny_mlp()
    optimizer = METHODS[method](sgd(model))
    trajectory(optimizer, model, BATCHES[:3], cross_entropy_of(model))
    model[0].requires_grad_(False)
    before = flat(model[0])
    trajectory(optimizer, model, BATCHES[3:], cross_entropy_of(model))
    assert torch.equal(flat(model[0]), before)


@pytest.mark.parametrize("method", METHODS)
def test_a_group_added_in_the_middle_of_training_is_trained(method: str) -> None:
    model = tiny_mlp()
    optimizer = METHODS[method](torch.optim.SGD(model[0].parameters(), lr=0.1))
    trajectory(optimizer, model, BATCHES[:3], cross_entropy_of(model))
    optimizer.add_param_group({"params": list(model[2].parameters()), "lr": 0.2})
    before = [p.detach().clone() for p in model.parameters()]
    trajectory(optimizer, model, BATCHES[3:], cross_entropy_of(model))
    assert not any(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))


class Sometimes(nn.Module):
    """`b` takes part only where the second number of the batch is positive."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.ones(3, dtype=torch.float64))
        self.b = nn.Parameter(torch.ones(2, dtype=torch.float64))

    def forward(self, batch: Tensor) -> Tensor:
        loss = (batch[0] * self.a).square().sum()
        return loss + (self.b**3).sum() if batch[1] > 0 else loss


def sometimes_batch(used: bool) -> Tensor:
    return torch.tensor([0.5, float(used)], dtype=torch.float64)


@pytest.mark.parametrize("method", METHODS)
def test_an_unused_parameter_is_left_alone_by_the_base(method: str) -> None:
    """No gradient means no weight decay and no momentum either."""
    model = Sometimes()
    optimizer = METHODS[method](sgd(model))
    for _ in range(4):
        optimizer.step(model, sometimes_batch(used=False))
    assert torch.equal(model.b, torch.ones(2, dtype=torch.float64))
    assert not optimizer.state.get(model.b)


def test_a_parameter_with_a_gradient_in_the_first_pass_only_is_restored() -> None:
    model = Sometimes()
    calls: list[Tensor] = []

    def loss_fn(batch: Tensor) -> Tensor:
        calls.append(model.b.detach().clone())
        return model(sometimes_batch(used=len(calls) == 1))

    sampa.SAM(sgd(model), rho=0.5).step(loss_fn, sometimes_batch(used=True))
    assert not torch.equal(calls[1], calls[0])
    assert torch.equal(model.b, calls[0])


def test_a_parameter_with_a_gradient_in_the_second_pass_only_is_updated() -> None:
    model = Sometimes()
    calls: list[Tensor] = []

    def loss_fn(batch: Tensor) -> Tensor:
        calls.append(model.b.detach().clone())
        return model(sometimes_batch(used=len(calls) == 2))

    sampa.SAM(sgd(model), rho=0.5).step(loss_fn, sometimes_batch(used=True))
    assert torch.equal(calls[1], calls[0])
    assert not torch.equal(model.b, calls[0])


def test_the_weights_keep_their_memory() -> None:
    """Views, flat buffers and DDP hold on to it."""
    model = tiny_mlp()
    before = [p.data_ptr() for p in model.parameters()]
    optimizer = sampa.SAMPa(sgd(model))
    trajectory(optimizer, model, BATCHES, cross_entropy_of(model))
    assert [p.data_ptr() for p in model.parameters()] == before
