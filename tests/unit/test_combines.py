"""From two gradients to the one handed on: mixes, GSAM's surrogate gap, LookSAM's reuse."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch

import sampa
from sampa.methods.looksam import ReuseFlatDirection
from sampa.methods.sam import SAMMethod
from sampa.pieces.combines import Mix, SurrogateGap, replace_gradient
from sampa.vectors.projections import orthogonal_part
from sampa.vectors.vector import Vector, add, dot, mix, scale
from tests.problems import flat
from tests.variants import BATCHES, entries, normalized_mlp, run, vector

generator = torch.Generator().manual_seed(0)


def random_vector(dtype: torch.dtype = torch.float64, size: int = 7) -> Vector:
    shapes = ((size, 2), (size,))
    return Vector(
        [torch.randn(s, generator=generator, dtype=torch.float64).to(dtype) for s in shapes]
    )


g, g_tilde = random_vector(), random_vector()


def assert_close(a: Vector, b: Vector, atol: float = 1e-14) -> None:
    """A few roundings on numbers of size 1."""
    for s, t in zip(a, b, strict=True):
        torch.testing.assert_close(s, t, rtol=0, atol=atol)


def test_sam_hands_on_the_perturbed_gradient_itself() -> None:
    assert replace_gradient(g, g_tilde) is g_tilde


# ---- mixes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [-0.5, 0.0, 0.3, 1.0, 9.0])
def test_mix_is_the_weighted_sum(alpha: float) -> None:
    expected = add(scale(g, 1 - alpha), scale(g_tilde, alpha))
    assert_close(Mix(alpha)(g, g_tilde), expected)


def test_penalty_is_linear_in_alpha() -> None:
    """G(½) is the mean of G(0) and G(1), seen from the steps of plain SGD."""
    start = flat(normalized_mlp())
    steps = [
        run(sampa.GradNormPenalty, BATCHES[:1], "sgd", rho=0.3, alpha=alpha)[0] - start
        for alpha in (0.0, 0.5, 1.0)
    ]
    torch.testing.assert_close(steps[1], (steps[0] + steps[2]) / 2, rtol=0, atol=1e-15)


def test_normalized_mix_takes_the_clean_gradients_direction() -> None:
    expected = mix(scale(g, 1 / g.norm), g_tilde, 0.8)
    assert_close(Mix(0.8, normalized=True)(g, g_tilde), expected, atol=0.0)


def test_normalized_mix_of_a_zero_gradient_is_finite() -> None:
    assert torch.isfinite(Mix(0.8, normalized=True)(scale(g, 0.0), g_tilde).norm)


def test_mix_has_the_whole_clean_gradient_where_some_tensors_are_perturbed() -> None:
    """With SAM-ON's geometry: the perturbation needs part of g, the mix needs all of it."""

    def step(alpha: float) -> torch.Tensor:
        method = SAMMethod(0.3, geometry=sampa.OnNorms(), combine=Mix(alpha))
        make = partial(sampa.SharpnessAware, method=method)
        return run(make, BATCHES[:1], "sgd")[0]

    assert torch.equal(step(0.0), run(sampa.Base, BATCHES[:1], "sgd")[0])
    assert torch.equal(step(1.0), run(sampa.SAMON, BATCHES[:1], "sgd", rho=0.3)[0])


# ---- GSAM ----------------------------------------------------------------------------------------


def test_gsams_correction_is_orthogonal_to_the_perturbed_gradient() -> None:
    correction = add(SurrogateGap(1.0)(g, g_tilde), g_tilde, alpha=-1.0)
    assert abs(dot(correction, g_tilde)) < 1e-14 * correction.norm * g_tilde.norm


def test_gsams_gradient_has_the_norm_of_a_right_triangle() -> None:
    """‖G‖² = ‖g̃‖² + α² ‖g⊥‖²."""
    g_perp = orthogonal_part(g, g_tilde)
    actual = SurrogateGap(0.4)(g, g_tilde).norm ** 2
    assert actual == pytest.approx(float(g_tilde.norm**2 + 0.16 * g_perp.norm**2), rel=1e-14)


def test_gsam_takes_the_clean_gradients_part_away() -> None:
    """The sign: moving against G raises the clean gradient's orthogonal part."""
    G = SurrogateGap(0.4)(g, g_tilde)
    g_perp = orthogonal_part(g, g_tilde)
    assert dot(G, g_perp) == pytest.approx(float(-0.4 * g_perp.norm**2), rel=1e-12)


def test_gsam_of_parallel_gradients_is_the_perturbed_one() -> None:
    assert_close(SurrogateGap(0.4)(scale(g, 3.0), g), g, atol=0.0)


def test_gsam_of_a_zero_perturbed_gradient_is_finite() -> None:
    assert torch.isfinite(SurrogateGap(0.4)(g, scale(g, 0.0)).norm)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("size", [10, 1000, 40_000])
def test_a_vector_has_no_part_orthogonal_to_itself(dtype: torch.dtype, size: int) -> None:
    """In half precision an inner product overflows, or keeps three digits, if summed as it is."""
    v = random_vector(dtype, size)
    assert orthogonal_part(v, v).norm == 0


# ---- LookSAM -------------------------------------------------------------------------------------


def test_looksams_flat_direction_is_orthogonal_to_the_clean_gradient() -> None:
    flat_direction = ReuseFlatDirection(0.7).remember(g, g_tilde)
    assert abs(dot(flat_direction, g)) < 1e-14 * flat_direction.norm * g.norm


def test_looksams_flat_direction_is_what_g_does_not_explain_of_the_perturbed_gradient() -> None:
    flat_direction = ReuseFlatDirection(0.7).remember(g, g_tilde)
    rest = add(g_tilde, flat_direction, alpha=-1.0)
    assert abs(abs(dot(rest, g)) - rest.norm * g.norm) < 1e-13  # parallel to g


@pytest.mark.parametrize("alpha", [0.1, 0.7])
def test_looksam_reuses_a_share_alpha_of_the_current_norm(alpha: float) -> None:
    """‖G − g‖ = α ‖g‖, with the g of now and the direction of then."""
    reuse = ReuseFlatDirection(alpha)
    now = random_vector()
    G = reuse(now, reuse.remember(g, g_tilde))
    assert add(G, now, alpha=-1.0).norm == pytest.approx(float(alpha * now.norm), rel=1e-13)


def test_looksam_without_a_flat_direction_is_the_base_optimizer() -> None:
    reuse = ReuseFlatDirection(0.7)
    assert_close(reuse(g, reuse.remember(g, g)), g, atol=0.0)


def test_looksams_inner_products_are_global() -> None:
    """Per tensor, as some implementations do, each part would be orthogonal on its own."""
    flat_direction = ReuseFlatDirection(0.7).remember(g, g_tilde)
    products = [
        torch.sum(a * b).item() for a, b in zip(*map(entries, (flat_direction, g)), strict=True)
    ]
    assert abs(products[0]) > 0.1
    assert products[0] == pytest.approx(-products[1], rel=1e-12)


def test_looksam_leaves_a_tensor_without_a_gradient_alone() -> None:
    G = ReuseFlatDirection(0.7)(vector([1.0], None), vector([0.0], [2.0]))
    assert G.tensors[1] is None


@pytest.mark.parametrize(
    "make", [lambda a: Mix(a), lambda a: SurrogateGap(a), lambda a: ReuseFlatDirection(a)]
)
def test_a_factor_that_is_not_finite_is_refused(make: Callable[[float], object]) -> None:
    with pytest.raises(ValueError, match="alpha must be finite, got nan"):
        make(float("nan"))
