"""SAMPa joined with another variant: what stays SAMPa's, and what becomes the variant's.

The gradient at y_t takes the place of the clean gradient wherever that feeds the perturbation; y
and the mix keep the plain training gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

import sampa
from sampa.pieces.geometry import every_parameter
from tests.problems import BASES, flat, gradient_of
from tests.variants import (
    BATCHES,
    assert_same,
    gradient_at,
    loss_of,
    normalized_mlp,
    nothing,
    points_of,
    run,
    training_loss,
)

RHO, LAM, LR = 0.3, 0.2, 0.1
# A mean over micro-batches is summed in another order; float64, weights of size 1, a few updates.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Composition:
    """The pieces SAMPa takes, the same pieces switched off, and the variant on its own."""

    pieces: dict[str, Any]
    off: dict[str, Any]
    alone: Callable[..., sampa.SharpnessAware]
    rounding: float = 0.0


COMPOSITIONS = {
    "asam": Composition(
        {"geometry": sampa.Adaptive()}, {"geometry": sampa.Adaptive(select=nothing)}, sampa.ASAM
    ),
    "sam-on": Composition(
        {"geometry": sampa.OnNorms()}, {"geometry": sampa.Only(every_parameter)}, sampa.SAMON
    ),
    "vasso": Composition(
        {"direction": sampa.Average(0.4)}, {"direction": sampa.Average(1.0)}, sampa.VaSSO
    ),
    "msam": Composition(
        {"micro_batches": sampa.MicroBatches(count=2)},
        {"micro_batches": sampa.MicroBatches(count=1)},
        partial(sampa.MicroBatchSAM, num_shards=2),
        rounding=ROUNDING,
    ),
    "bisam": Composition(
        {"ascent_loss": sampa.ZeroOneBound()}, {"ascent_loss": training_loss}, sampa.BiSAM
    ),
}
every_composition = pytest.mark.parametrize("name", COMPOSITIONS)
some_bases = pytest.mark.parametrize("base", ["sgd", "sgd-momentum", "adamw"])


@every_composition
def test_composition_is_what_the_catalog_builds(name: str) -> None:
    pieces: dict[str, Any] = COMPOSITIONS[name].pieces
    if name == "msam":  # 32 samples in a micro-batch by default, the tests' batches have six
        pieces = {"micro_batches": sampa.MicroBatches()}
    actual = run(partial(sampa.METHODS[f"sampa+{name}"], rho=RHO))
    assert_same(actual, run(sampa.SAMPa, rho=RHO, lam=LAM, **pieces))


@some_bases
@every_composition
def test_first_update_with_lam_zero_is_the_variants_own(name: str, base: str) -> None:
    c = COMPOSITIONS[name]
    actual = run(sampa.SAMPa, BATCHES[:2], base, rho=RHO, lam=0.0, **c.pieces)
    assert_same(actual, run(c.alone, BATCHES[:1], base, rho=RHO))


@some_bases
@every_composition
def test_variant_switched_off_gives_plain_sampa(name: str, base: str) -> None:
    c = COMPOSITIONS[name]
    actual = run(sampa.SAMPa, base=base, rho=RHO, lam=LAM, **c.off)
    assert_same(actual, run(sampa.SAMPa, base=base, rho=RHO, lam=LAM))


@some_bases
@every_composition
def test_lam_one_gives_optgd_whatever_the_variant(name: str, base: str) -> None:
    c = COMPOSITIONS[name]
    actual = run(sampa.SAMPa, base=base, rho=RHO, lam=1.0, **c.pieces)
    assert_same(actual, run(sampa.OptGD, base=base), atol=c.rounding)


@every_composition
def test_composition_is_not_plain_sampa(name: str) -> None:
    """Guards the tests above: the pieces do change the path."""
    actual = run(sampa.SAMPa, rho=RHO, lam=LAM, **COMPOSITIONS[name].pieces)
    plain = run(sampa.SAMPa, rho=RHO, lam=LAM)
    assert not torch.allclose(actual[-1], plain[-1], atol=1e-4)


# ---- step by step --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """One update, seen from outside, and what it should have been made of."""

    x: Tensor
    x_tilde: list[Tensor]
    y: Tensor  # where the incoming batch was evaluated
    g: Tensor  # the plain gradient at the y before, on the held batch
    y_before: Tensor
    handed_on: Tensor  # the gradient that the base optimizer got
    t: int


def steps_of(name: str) -> list[Step]:
    """SAMPa on plain SGD: x̃ is where the held batch is evaluated, y where the incoming one is."""
    model = normalized_mlp()
    base = BASES["sgd"](model.parameters())
    optimizer = sampa.SAMPa(
        base,
        rho=RHO,
        lam=LAM,
        perturb_eps=0.0,
        executor=sampa.Serial(model),
        **COMPOSITIONS[name].pieces,
    )
    steps: list[Step] = []
    y_before = flat(model)
    for t, batch in enumerate(BATCHES):
        points: dict[bool, list[Tensor]] = {False: [], True: []}

        def loss_fn(
            part: Any, points: dict[bool, list[Tensor]] = points, batch: Any = batch
        ) -> sampa.Loss:
            is_incoming = bool(torch.isin(part[2], batch[2]).all())
            points[is_incoming].append(flat(model))
            return loss_of(model)(part)

        x = flat(model)
        optimizer.step(loss_fn, batch)
        if t == 0:
            continue
        handed_on = gradient_of(model)
        g = gradient_at(y_before, BATCHES[t - 1])
        x_tilde, y = points[False], points[True][0]
        assert all(torch.equal(y, other) for other in points[True])
        steps.append(Step(x, x_tilde, y, g, y_before, handed_on, t - 1))
        y_before = y
    return steps


@every_composition
def test_lookahead_always_uses_the_plain_gradient(name: str) -> None:
    """y_{t+1} = x_t − η g_t, whatever is climbed."""
    for step in steps_of(name):
        torch.testing.assert_close(step.y, step.x - LR * step.g, rtol=0, atol=ROUNDING)


@every_composition
def test_mix_always_uses_the_plain_gradient(name: str) -> None:
    """G_t = (1−λ) g̃_t + λ g_{t+1}, with both gradients taken by hand."""
    for step in steps_of(name):
        held, incoming = BATCHES[step.t], BATCHES[step.t + 1]
        parts = [held] if len(step.x_tilde) == 1 else halves(held)
        perturbed = [gradient_at(p, b) for p, b in zip(step.x_tilde, parts, strict=True)]
        g_tilde = torch.stack(perturbed).mean(0)
        expected = (1 - LAM) * g_tilde + LAM * gradient_at(step.y, incoming)
        torch.testing.assert_close(step.handed_on, expected, rtol=0, atol=ROUNDING)


def halves(batch: Any) -> list[Any]:
    return [tuple(t[:3] for t in batch), tuple(t[3:] for t in batch)]


def test_asam_scales_by_the_weights_at_x_and_not_at_y() -> None:
    names = [name for name, _ in normalized_mlp().named_parameters()]
    sizes = [p.numel() for p in normalized_mlp().parameters()]
    scaled = torch.cat([torch.full((n,), "weight" in k) for k, n in zip(names, sizes, strict=True)])
    for step in steps_of("asam"):
        T = torch.where(scaled, step.x.abs() + 0.01, torch.ones(()).double())
        expected = step.x + RHO * T * T * step.g / (T * step.g).norm()
        torch.testing.assert_close(step.x_tilde[0], expected, rtol=0, atol=ROUNDING)


def test_sam_on_perturbs_normalization_layers_alone() -> None:
    sizes = [p.numel() for p in normalized_mlp().parameters()]
    on_norms = torch.cat([torch.full((n,), i in (2, 3)) for i, n in enumerate(sizes)])
    for step in steps_of("sam-on"):
        assert torch.equal(step.x_tilde[0][~on_norms], step.x[~on_norms])
        g = step.g * on_norms
        expected = step.x + RHO * g / g.norm()
        torch.testing.assert_close(step.x_tilde[0], expected, rtol=0, atol=ROUNDING)


def test_vasso_averages_the_gradients_at_y_once_an_update() -> None:
    d: Tensor | None = None
    for step in steps_of("vasso"):
        d = step.g if d is None else 0.6 * d + 0.4 * step.g
        expected = step.x + RHO * d / d.norm()
        torch.testing.assert_close(step.x_tilde[0], expected, rtol=0, atol=ROUNDING)


def test_msam_perturbs_each_micro_batch_by_its_own_gradient_at_y() -> None:
    for step in steps_of("msam"):
        for point, part in zip(step.x_tilde, halves(BATCHES[step.t]), strict=True):
            g = gradient_at(step.y_before, part)
            torch.testing.assert_close(point, step.x + RHO * g / g.norm(), rtol=0, atol=ROUNDING)


def test_bisam_perturbs_by_the_bounds_gradient_at_y() -> None:
    for step in steps_of("bisam"):
        p = gradient_at(step.y_before, BATCHES[step.t], sampa.ZeroOneBound())
        expected = step.x + RHO * p / p.norm()
        torch.testing.assert_close(step.x_tilde[0], expected, rtol=0, atol=ROUNDING)


# ---- options -------------------------------------------------------------------------------------


def test_shared_gradient_saves_a_probe_and_looks_ahead_along_the_bound() -> None:
    settings = {"rho": RHO, "ascent_loss": sampa.ZeroOneBound(), "shared_gradient": True}
    first, second = points_of(sampa.SAMPa, BATCHES[:2], "sgd", **settings)
    assert len(second) == 3  # x_t, and x̃ and y
    p = gradient_at(first[0], BATCHES[0], sampa.ZeroOneBound())
    (y,) = second.on(BATCHES[1])
    torch.testing.assert_close(y, second[0] - LR * p, rtol=0, atol=ROUNDING)


def test_micro_batches_of_a_short_last_batch_are_weighted_by_their_size() -> None:
    """Five samples in two parts: the mean of the parts' gradients is not that of the batch."""
    short = [tuple(t[:5] for t in batch) for batch in BATCHES]
    pieces = COMPOSITIONS["msam"].pieces
    actual = run(sampa.SAMPa, short, rho=RHO, lam=1.0, **pieces)
    assert_same(actual, run(sampa.OptGD, short), atol=ROUNDING)


def test_number_of_micro_batches_may_change_between_batches() -> None:
    """Four held parts beside two incoming ones, and the other way round."""
    mixed = [BATCHES[0], tuple(t[:3] for t in BATCHES[1]), BATCHES[2], BATCHES[3]]
    pieces: dict[str, Any] = {"micro_batches": sampa.MicroBatches(size=2)}
    actual = run(sampa.SAMPa, mixed, rho=0.0, lam=0.0, **pieces)
    assert_same(actual, run(sampa.Base, mixed[:-1]), atol=ROUNDING)


@pytest.mark.parametrize(
    "pieces",
    [{"direction": sampa.Average()}, {"ascent_loss": sampa.ZeroOneBound()}],
    ids=["vasso", "bisam"],
)
def test_micro_batches_with_another_thing_to_climb_are_refused(pieces: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="micro_batches must be None with another direction"):
        run(sampa.SAMPa, micro_batches=sampa.MicroBatches(), **pieces)
