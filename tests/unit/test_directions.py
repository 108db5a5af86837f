"""Directions: what is climbed, and what is remembered of it."""

from __future__ import annotations

import pytest
import torch

import sampa
from sampa.vectors.vector import Vector, add, scale
from tests.variants import vector

generator = torch.Generator().manual_seed(0)
GRADIENTS = [
    Vector([torch.randn(s, generator=generator, dtype=torch.float64) for s in ((3, 2), (4,))])
    for _ in range(5)
]


def climbed(direction: sampa.Average | sampa.Residual, gradients: list[Vector]) -> list[Vector]:
    memory, result = None, []
    for g in gradients:
        d, memory = direction(g, memory)
        result.append(d)
    return result


def assert_close(a: Vector, b: Vector, atol: float = 1e-14) -> None:
    """A few roundings on numbers of size 1."""
    for s, t in zip(a, b, strict=True):
        torch.testing.assert_close(s, t, rtol=0, atol=atol)


# ---- VaSSO ---------------------------------------------------------------------------------------


def test_average_is_the_recurrence_from_the_first_gradient() -> None:
    """d_t = (1−θ) d_{t−1} + θ g_t with d_0 = g_0."""
    expected = GRADIENTS[0]
    for g, d in zip(GRADIENTS, climbed(sampa.Average(0.4), GRADIENTS), strict=True):
        if g is not GRADIENTS[0]:
            expected = add(scale(expected, 0.6), g, alpha=0.4)
        assert_close(d, expected)


def test_average_of_a_constant_gradient_is_the_gradient() -> None:
    assert_close(climbed(sampa.Average(0.3), [GRADIENTS[0]] * 5)[-1], GRADIENTS[0])


def test_a_small_theta_remembers_longer() -> None:
    """After one zero gradient 1 − θ of the average is left."""
    zero = scale(GRADIENTS[0], 0.0)
    d = climbed(sampa.Average(0.1), [GRADIENTS[0], zero])[1]
    assert d.norm == pytest.approx(float(0.9 * GRADIENTS[0].norm), rel=1e-14)


def test_a_tensor_without_a_gradient_is_not_climbed() -> None:
    d, memory = sampa.Average(0.5)(vector(None, [1.0]), vector([2.0], [3.0]))
    assert d.tensors[0] is None
    assert memory is not None
    assert memory.tensors[0] == torch.tensor([2.0])


def test_the_norm_does_not_count_a_tensor_without_a_gradient() -> None:
    d, _ = sampa.Average(0.5)(vector(None, [1.0]), vector([2.0], [3.0]))
    assert d.norm == 2.0


def test_a_tensor_that_gets_its_first_gradient_later_starts_there() -> None:
    d, _ = sampa.Average(0.5)(vector([4.0], [1.0]), vector(None, [3.0]))
    assert d.tensors[0] == torch.tensor([4.0])


# ---- Friendly-SAM --------------------------------------------------------------------------------


def test_residual_subtracts_the_old_average_of_raw_gradients() -> None:
    """d_t = g_t − σ m_{t−1}; m averages g, not the difference (a known trap)."""
    sigma, lmbda = 0.7, 0.6
    m = GRADIENTS[0]
    directions = climbed(sampa.Residual(sigma, lmbda), GRADIENTS)
    for g, d in zip(GRADIENTS[1:], directions[1:], strict=True):
        assert_close(d, add(g, m, alpha=-sigma))
        m = add(scale(m, lmbda), g, alpha=1 - lmbda)


def test_first_residual_is_the_gradient() -> None:
    assert climbed(sampa.Residual(), GRADIENTS[:1])[0] is GRADIENTS[0]


def test_for_sigma_one_the_papers_order_gives_the_same_direction() -> None:
    """g − m_t = λ (g − m_{t−1})."""
    lmbda, m = 0.6, GRADIENTS[0]
    directions = climbed(sampa.Residual(1.0, lmbda), GRADIENTS)
    for g, d in zip(GRADIENTS[1:], directions[1:], strict=True):
        m = add(scale(m, lmbda), g, alpha=1 - lmbda)
        paper = add(g, m, alpha=-1.0)
        assert_close(scale(d, 1 / d.norm), scale(paper, 1 / paper.norm))


def test_lmbda_one_keeps_the_first_gradient_as_the_average() -> None:
    for g, d in zip(GRADIENTS[1:], climbed(sampa.Residual(1.0, 1.0), GRADIENTS)[1:], strict=True):
        assert_close(d, add(g, GRADIENTS[0], alpha=-1.0), atol=0.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_constant_gradients_leave_nothing_to_climb(dtype: torch.dtype) -> None:
    """The difference is rounding noise; a unit vector of noise would be a full perturbation."""
    g = GRADIENTS[0].map_elements(lambda t: t.to(dtype))
    directions = climbed(sampa.Residual(1.0, 0.6), [g] * 6)
    assert all(d.norm == 0.0 for d in directions[1:])


def test_constant_gradients_leave_the_weights_unperturbed() -> None:
    points: list[float] = []
    w = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    optimizer = sampa.FriendlySAM(torch.optim.SGD([w], lr=0.1), rho=0.5)

    def loss_fn(batch: torch.Tensor) -> torch.Tensor:
        points.append(w[0].item())
        return (batch * w).sum()

    for _ in range(3):
        optimizer.step(loss_fn, torch.tensor([0.3, -0.7]))
    assert points[0] != points[1]
    assert points[2] == points[3]
    assert points[4] == points[5]


def test_residual_of_a_tensor_without_a_gradient_is_absent() -> None:
    d, memory = sampa.Residual()(vector(None, [1.0]), vector([2.0], [3.0]))
    assert d.tensors[0] is None
    assert memory is not None
    assert memory.tensors[0] == torch.tensor([2.0])
