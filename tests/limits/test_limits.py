"""Settings in which a method becomes a known one, each test naming the property."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import sampa
from tests.problems import (
    BASES,
    Batch,
    cross_entropy_of,
    flat,
    held_gradient,
    sgd,
    tiny_mlp,
    trajectory,
    vector_batches,
    watched,
)

BATCHES = vector_batches(7)
BaseFactory = Callable[[Any], torch.optim.Optimizer]


def run(
    make: Callable[..., sampa.SharpnessAware],
    batches: list[Batch] = BATCHES,
    base: BaseFactory = BASES["sgd-momentum"],
    **settings: Any,
) -> list[Tensor]:
    model = tiny_mlp()
    optimizer = make(base(model.parameters()), **settings)
    return trajectory(optimizer, model, batches, cross_entropy_of(model))


def assert_same(actual: list[Tensor], expected: list[Tensor]) -> None:
    """Zero tolerance, at every update."""
    assert len(actual) == len(expected) > 0
    for t, (a, b) in enumerate(zip(actual, expected, strict=True)):
        assert torch.equal(a, b), f"first difference after update {t + 1}"


def perturbation(factor: float = 1.0, **settings: Any) -> Tensor:
    """x̃ − x of SAM's first step."""
    model = tiny_mlp()
    loss_fn, points = watched(model, lambda b: factor * cross_entropy_of(model)(b))
    sampa.SAM(sgd(model), **settings).step(loss_fn, BATCHES[0])
    return points[1] - points[0]


# ---- ρ = 0 -------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("make", [sampa.SAM, sampa.RandSAM, sampa.OptSAM])
def test_a_method_without_radius_is_the_base_optimizer(
    make: Callable[..., sampa.SharpnessAware], base: str
) -> None:
    assert_same(run(make, base=BASES[base], rho=0.0), run(sampa.Base, base=BASES[base]))


@pytest.mark.parametrize("base", BASES)
def test_sampa_without_radius_and_lam_zero_is_the_base_optimizer_on_the_held_batch(
    base: str,
) -> None:
    expected = run(sampa.Base, BATCHES[:-1], BASES[base])
    assert_same(run(sampa.SAMPa, base=BASES[base], rho=0.0, lam=0.0), expected)


def test_sam_db_without_radius_is_the_base_optimizer_on_the_update_batch() -> None:
    assert_same(run(sampa.SAMdb, rho=0.0), run(sampa.Base, BATCHES[:-1]))


def test_previous_form_of_sam_db_without_radius_updates_on_the_incoming_batch() -> None:
    expected = run(sampa.Base, BATCHES[1:])
    assert_same(run(sampa.SAMdb, rho=0.0, perturb_on="previous"), expected)


@pytest.mark.parametrize("base", BASES)
def test_base_is_a_plain_loop_over_the_torch_optimizer(base: str) -> None:
    model = tiny_mlp()
    plain, loss_fn = BASES[base](model.parameters()), cross_entropy_of(model)
    expected: list[Tensor] = []
    for batch in BATCHES:
        plain.zero_grad()
        loss_fn(batch).backward()
        plain.step()
        expected.append(flat(model))
    assert_same(run(sampa.Base, base=BASES[base]), expected)


# ---- SAM ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["next", "previous"])
def test_sam_db_with_equal_batches_is_sam(form: str) -> None:
    same = [BATCHES[0]] * 5
    assert_same(run(sampa.SAMdb, same, rho=0.3, perturb_on=form), run(sampa.SAM, same[1:], rho=0.3))


def test_optsam_makes_its_first_update_unperturbed() -> None:
    assert_same(run(sampa.OptSAM, BATCHES[:1], rho=0.3), run(sampa.Base, BATCHES[:1]))


def test_sam_moves_by_exactly_the_radius() -> None:
    # Rounding of the norm and of x + e is about 1e-16; eps = 1e-12 shortens by less than 1e-11.
    assert perturbation(rho=0.3).norm().item() == pytest.approx(0.3, rel=1e-11)


@pytest.mark.parametrize("factor", [0.25, 8.0])
def test_scaling_the_loss_leaves_the_ascent_point_unchanged(factor: float) -> None:
    """Powers of two change no digits and eps is 0, so zero tolerance."""
    expected = perturbation(rho=0.3, perturb_eps=0.0)
    assert torch.equal(perturbation(factor, rho=0.3, perturb_eps=0.0), expected)


def test_flipping_the_sign_of_the_loss_flips_the_perturbation() -> None:
    # x + e and x − e round differently: 1e-16 is one unit in the last place of weights below 1.
    torch.testing.assert_close(
        perturbation(-1.0, rho=0.3), -perturbation(rho=0.3), rtol=0, atol=3e-16
    )


def test_weight_decay_does_not_tilt_the_perturbation() -> None:
    model = tiny_mlp()
    loss_fn, points = watched(model, cross_entropy_of(model))
    sampa.SAM(sgd(model, weight_decay=10.0), rho=0.3).step(loss_fn, BATCHES[0])
    assert torch.equal(points[1] - points[0], perturbation(rho=0.3))


def test_perturb_eps_shortens_the_perturbation_of_a_tiny_gradient() -> None:
    model = torch.nn.Linear(1, 1, bias=False).double()
    loss_fn, points = watched(model, lambda x: (model(x) * 1e-6).sum())
    sampa.SAM(sgd(model), rho=1.0, perturb_eps=1e-7).step(loss_fn, torch.ones(1, 1).double())
    assert (points[1] - points[0]).item() == pytest.approx(1 / 1.1, rel=1e-9)


def test_randsam_moves_by_exactly_the_radius() -> None:
    model = tiny_mlp()
    loss_fn, points = watched(model, cross_entropy_of(model))
    start = flat(model)
    sampa.RandSAM(sgd(model), rho=0.3).step(loss_fn, BATCHES[0])
    assert (points[0] - start).norm().item() == pytest.approx(0.3, rel=1e-11)


def test_randsam_draws_a_fresh_direction_each_step() -> None:
    model = tiny_mlp()
    loss_fn, points = watched(model, cross_entropy_of(model))
    optimizer = sampa.RandSAM(sgd(model), rho=0.3)
    directions: list[Tensor] = []
    for batch in BATCHES[:2]:
        start = flat(model)
        optimizer.step(loss_fn, batch)
        directions.append(points[-1] - start)
    assert not torch.allclose(directions[0], directions[1], atol=1e-3)


# ---- SAMPa -------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", BASES)
def test_first_update_of_sampa_zero_is_sams(base: str) -> None:
    actual = run(sampa.SAMPa, BATCHES[:2], BASES[base], rho=0.3, lam=0.0)
    assert_same(actual, run(sampa.SAM, BATCHES[:1], BASES[base], rho=0.3))


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("rho", [0.0, 0.3, 5.0])
def test_sampa_one_is_optgd_whatever_the_radius(base: str, rho: float) -> None:
    expected = run(sampa.OptGD, base=BASES[base])
    assert_same(run(sampa.SAMPa, base=BASES[base], rho=rho, lam=1.0), expected)


def test_a_later_batch_cannot_change_an_earlier_update() -> None:
    """x_{t+1} depends on B_0 .. B_{t+1} alone."""
    other = [*BATCHES[:4], *vector_batches(3, seed=1)]
    actual = run(sampa.SAMPa, other, rho=0.3, lam=0.2)
    expected = run(sampa.SAMPa, BATCHES, rho=0.3, lam=0.2)
    assert_same(actual[:3], expected[:3])
    assert not torch.equal(actual[3], expected[3])


def test_first_call_of_sampa_changes_no_weights() -> None:
    model = tiny_mlp()
    start = flat(model)
    sampa.SAMPa(sgd(model), rho=0.3).step(cross_entropy_of(model), BATCHES[0])
    assert torch.equal(flat(model), start)


@pytest.mark.parametrize("lam", [0.0, 0.2, 1.0])
def test_distance_between_x_and_y_is_the_step_on_the_change_of_gradient(lam: float) -> None:
    """x_{t+1} − y_{t+1} = −η (G_t − g_t) for SGD with momentum and weight decay."""
    model = tiny_mlp()
    base = sgd(model)
    loss_fn, points = watched(model, cross_entropy_of(model))
    optimizer = sampa.SAMPa(base, rho=0.3, lam=lam)
    optimizer.step(loss_fn, BATCHES[0])
    for batch in BATCHES[1:]:
        g = held_gradient(optimizer)
        optimizer.step(loss_fn, batch)
        G = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        (y,) = points.on(batch)
        # Two steps of three roundings each, on weights of size 1: a few units of 1e-16.
        torch.testing.assert_close(flat(model) - y, -0.1 * (G - g), rtol=0, atol=1e-15)
