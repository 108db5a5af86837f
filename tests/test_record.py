"""`optimizer.last` and the returned loss: what a step says about itself."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import sampa
from tests.problems import (
    BASES,
    METHODS,
    cross_entropy_of,
    image_batches,
    sgd,
    small_net,
    tiny_mlp,
    vector_batches,
    watched,
)

BATCHES = vector_batches(5)

# (rounds, probes) of the first call and of every later one; rounds are the paper's sequential
# gradients, so these are the costs in its tables.
COSTS: dict[str, tuple[tuple[int, int], tuple[int, int]]] = {
    "base": ((1, 1), (1, 1)),
    "sam": ((2, 2), (2, 2)),
    "sam-db": ((1, 1), (2, 2)),
    "sam-db-previous": ((1, 1), (2, 2)),
    "sampa-0": ((1, 1), (1, 2)),
    "sampa-0.2": ((1, 1), (1, 2)),
    "sampa-script": ((1, 1), (1, 2)),
    "optgd": ((1, 1), (1, 1)),
    "randsam": ((1, 1), (1, 1)),
    "optsam": ((1, 1), (1, 1)),
}
FIRST_CALL_UPDATES = {"base", "sam", "sampa-script", "randsam", "optsam"}


def records(name: str, calls: int = 4) -> list[sampa.StepRecord]:
    model = tiny_mlp()
    optimizer = METHODS[name](sgd(model))
    found: list[sampa.StepRecord] = []
    for batch in BATCHES[:calls]:
        optimizer.step(cross_entropy_of(model), batch)
        assert optimizer.last is not None
        found.append(optimizer.last)
    return found


@pytest.mark.parametrize("name", METHODS)
def test_rounds_and_probes_are_the_methods_cost(name: str) -> None:
    first, later = COSTS[name]
    assert [(r.rounds, r.probes) for r in records(name)] == [first, *[later] * 3]


@pytest.mark.parametrize("name", METHODS)
def test_probes_are_as_many_as_calls_of_loss_fn(name: str) -> None:
    model = tiny_mlp()
    loss_fn, points = watched(model, cross_entropy_of(model))
    optimizer = METHODS[name](sgd(model))
    for batch in BATCHES:
        points.clear()
        optimizer.step(loss_fn, batch)
        assert optimizer.last is not None
        assert optimizer.last.probes == len(points)


@pytest.mark.parametrize("name", METHODS)
def test_step_counts_the_updates_made(name: str) -> None:
    late = 0 if name in FIRST_CALL_UPDATES else 1
    assert [r.step for r in records(name)] == [1 - late, 2 - late, 3 - late, 4 - late]


@pytest.mark.parametrize("name", METHODS)
def test_updated_says_whether_the_weights_changed(name: str) -> None:
    assert [r.updated for r in records(name)] == [name in FIRST_CALL_UPDATES, True, True, True]


@pytest.mark.parametrize("name", METHODS)
def test_a_finite_step_is_not_skipped(name: str) -> None:
    assert not any(r.skipped or r.skips for r in records(name))


def test_there_is_no_record_before_the_first_step() -> None:
    assert sampa.SAM(sgd(tiny_mlp())).last is None


def gradient(model: torch.nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    gradients = torch.autograd.grad(cross_entropy_of(model)(batch), list(model.parameters()))
    return torch.cat([g.flatten() for g in gradients])


def test_losses_and_norms_are_those_of_the_two_points_of_sam() -> None:
    model, twin = tiny_mlp(), tiny_mlp()
    loss_fn, points = watched(model, cross_entropy_of(model))
    optimizer = sampa.SAM(sgd(model), rho=0.3)
    optimizer.step(loss_fn, BATCHES[0])
    losses, norms = [], []
    for point in points:
        torch.nn.utils.vector_to_parameters(point, twin.parameters())
        losses.append(cross_entropy_of(twin)(BATCHES[0]).item())
        norms.append(gradient(twin, BATCHES[0]).norm().item())
    assert optimizer.last is not None
    assert optimizer.last.losses == tuple(losses)
    assert optimizer.last.norms == pytest.approx(norms, rel=1e-14)  # another order of summation


@pytest.mark.parametrize("base", ["sgd-momentum", "sgd-nesterov-foreach"])
def test_cosine_is_the_angle_between_the_two_gradients_of_sam(base: str) -> None:
    """Also with a base that writes into its gradients, as the second one does."""
    model, twin = tiny_mlp(), tiny_mlp()
    loss_fn, points = watched(model, cross_entropy_of(model))
    optimizer = sampa.SAM(BASES[base](model.parameters()), rho=0.3)
    optimizer.step(loss_fn, BATCHES[0])
    g = gradient(twin, BATCHES[0])
    torch.nn.utils.vector_to_parameters(points[1], twin.parameters())
    expected = torch.nn.functional.cosine_similarity(g, gradient(twin, BATCHES[0]), dim=0)
    assert optimizer.last is not None
    assert optimizer.last.cosine == pytest.approx(expected.item(), rel=1e-13)


@pytest.mark.parametrize("name", ["base", "optgd", "randsam", "optsam"])
def test_a_single_gradient_has_no_cosine(name: str) -> None:
    assert all(r.cosine is None for r in records(name))


def test_sharpness_of_sam_is_the_rise_of_the_loss() -> None:
    for r in records("sam"):
        assert r.sharpness == r.losses[1] - r.losses[0] > 0


def test_sharpness_of_sampa_compares_the_held_batch_with_itself() -> None:
    """f(x̃_t; B_t) − f(y_t; B_t), the latter seen one call earlier."""
    found = records("sampa-0.2")
    assert found[0].sharpness is None
    for before, r in pairwise(found):
        assert r.sharpness == r.losses[0] - before.losses[-1]


@pytest.mark.parametrize("name", ["base", "optgd", "randsam", "optsam"])
def test_without_both_points_there_is_no_sharpness(name: str) -> None:
    assert all(r.sharpness is None for r in records(name))


@pytest.mark.parametrize("name", METHODS)
def test_the_returned_loss_is_a_number_without_graph(name: str) -> None:
    model = tiny_mlp()
    loss = METHODS[name](sgd(model)).step(cross_entropy_of(model), BATCHES[0])
    assert loss.shape == ()
    assert not loss.requires_grad
    assert math.isfinite(loss.item())


def test_sam_returns_the_loss_at_the_clean_weights() -> None:
    model, twin = tiny_mlp(), tiny_mlp()
    loss = sampa.SAM(sgd(model), rho=0.3).step(cross_entropy_of(model), BATCHES[0])
    assert torch.equal(loss, cross_entropy_of(twin)(BATCHES[0]))


def test_sampa_returns_the_loss_on_the_incoming_batch_at_the_lookahead() -> None:
    model, twin = tiny_mlp(), tiny_mlp()
    loss_fn, points = watched(model, cross_entropy_of(model))
    optimizer = sampa.SAMPa(sgd(model), rho=0.3)
    optimizer.step(loss_fn, BATCHES[0])
    loss = optimizer.step(loss_fn, BATCHES[1])
    (y,) = points.on(BATCHES[1])
    torch.nn.utils.vector_to_parameters(y, twin.parameters())
    assert torch.equal(loss, cross_entropy_of(twin)(BATCHES[1]))


def test_a_record_cannot_be_changed() -> None:
    (record,) = records("sam", calls=1)
    with pytest.raises(AttributeError):
        record.rounds = 1  # type: ignore[misc]


def test_the_points_that_sharpness_compares_are_named() -> None:
    """SAM's clean point is x_t; SAMPa's is y_t, from the step before."""
    batches = list(image_batches(3))
    for factory, where in ((sampa.SAM, "x"), (sampa.SAMPa, "y")):
        model = small_net()
        optimizer = factory(torch.optim.SGD(model.parameters(), lr=0.1), rho=0.07)
        for x, y in batches:
            optimizer.step(lambda b, model=model: F.cross_entropy(model(b[0]), b[1]), (x, y))
        assert optimizer.last is not None
        assert (optimizer.last.clean_at, optimizer.last.rho) == (where, 0.07)


def test_groups_that_differ_have_no_common_radius_and_sgd_no_clean_point() -> None:
    model = small_net()
    groups = [{"params": model.conv.parameters()}, {"params": model.head.parameters(), "rho": 0.2}]
    optimizer = sampa.SAM(torch.optim.SGD(groups, lr=0.1), rho=0.1)
    plain = sampa.Base(torch.optim.SGD(model.parameters(), lr=0.1))
    batch = next(iter(image_batches(1)))
    for each in (optimizer, plain):
        each.step(lambda b: F.cross_entropy(model(b[0]), b[1]), batch)
    assert optimizer.last is not None
    assert optimizer.last.rho is None
    assert plain.last is not None
    assert plain.last.clean_at is None
