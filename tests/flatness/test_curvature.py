"""Curvature against whole matrices, and against curvlinops with scipy."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

import sampa
from sampa import flatness
from sampa.flatness.curvature import random_signs
from sampa.flatness.surface import Matrix
from tests.flatness.reference import (
    batches,
    flattened,
    gauss_newton,
    hessian,
    joined,
    loss_of,
    net,
)
from tests.problems import image_batches, small_net

WHOLE = {"hessian": hessian, "gauss-newton": gauss_newton}
MATRICES: list[Matrix] = ["hessian", "gauss-newton"]


@pytest.mark.parametrize("matrix", MATRICES)
def test_all_eigenvalues_equal_those_of_the_whole_matrix(matrix: Matrix) -> None:
    model, data = net(), batches()
    whole = WHOLE[matrix](model, joined(data))
    found = flatness.hessian_eigenvalues(model, loss_of(model), data, k=21, matrix=matrix)
    torch.testing.assert_close(
        torch.tensor(found.values, dtype=torch.float64),
        torch.linalg.eigvalsh(whole).flip(0),
        rtol=1e-9,
        atol=1e-12,  # of a double-precision sum over 12 samples
    )
    assert found.gradients == pytest.approx(2 * 21)


@pytest.mark.parametrize("matrix", MATRICES)
def test_the_first_eigenvectors_are_eigenvectors_of_the_whole_matrix(matrix: Matrix) -> None:
    model, data = net(), batches()
    whole = WHOLE[matrix](model, joined(data))
    found = flatness.hessian_eigenvalues(
        model, loss_of(model), data, k=3, matrix=matrix, tolerance=1e-10
    )
    for value, vector in zip(found.values, found.vectors, strict=True):
        v = flattened(vector)
        torch.testing.assert_close(whole @ v, value * v, rtol=0, atol=1e-9)
        assert float(v.norm()) == pytest.approx(1.0)


def test_errors_bound_the_distance_to_an_eigenvalue() -> None:
    model, data = net(), batches()
    exact = torch.linalg.eigvalsh(hessian(model, joined(data)))
    found = flatness.hessian_eigenvalues(model, loss_of(model), data, k=2, max_products=4)
    assert max(found.errors) > 1e-6  # it was stopped early
    for value, error in zip(found.values, found.errors, strict=True):
        assert float((exact - value).abs().min()) <= error + 1e-12


@pytest.mark.parametrize("matrix", MATRICES)
def test_each_sample_of_the_trace_is_that_of_the_whole_matrix(matrix: Matrix) -> None:
    model, data = net(), batches()
    whole = WHOLE[matrix](model, joined(data))
    found = flatness.hessian_trace(model, loss_of(model), data, matrix=matrix, draws=60, seed=3)
    for draw in range(3):
        z = flattened(random_signs(list(model.parameters()), 3, draw))
        assert found.samples[draw] == pytest.approx(float(z @ whole @ z), rel=1e-10)
    assert abs(found.value - float(whole.trace())) < 4 * found.standard_error
    assert found.gradients == pytest.approx(120)


def test_the_density_has_the_moments_of_the_whole_matrix() -> None:
    """Gauss quadrature with m nodes is exact for polynomials up to degree 2m − 1."""
    model, data = net(), batches()
    whole = hessian(model, joined(data))
    found = flatness.spectral_density(model, loss_of(model), data, products=3, draws=2, seed=5)
    for draw in range(2):
        z = flattened(random_signs(list(model.parameters()), 5, draw)) / 21**0.5
        for power in range(6):
            moment = float(z @ torch.linalg.matrix_power(whole, power) @ z)
            by_nodes = float((found.weights[draw] * found.nodes[draw] ** power).sum())
            assert by_nodes == pytest.approx(moment, rel=1e-8, abs=1e-12)
    assert found.gradients == pytest.approx(12)
    grid = torch.linspace(-5, 5, 2001)
    assert float(found.at(grid, 0.1).sum() * 0.005) == pytest.approx(1, abs=1e-3)


def test_a_matrix_of_low_rank_closes_the_space_and_goes_on() -> None:
    """A loss of one direction alone: one eigenvalue, and zeros."""
    model = nn.Linear(4, 1, bias=False).double()
    x = torch.tensor([[1.0, 2.0, 0.0, 0.0]], dtype=torch.float64)

    def loss_fn(batch: Tensor) -> Tensor:
        return 0.5 * model(batch).square().mean()

    found = flatness.hessian_eigenvalues(model, loss_fn, [x], k=4)
    assert found.values == pytest.approx((5, 0, 0, 0), abs=1e-10)
    density = flatness.spectral_density(model, loss_fn, [x], products=4)
    z = flattened(random_signs(list(model.parameters()), 0, 0))
    assert float((density.nodes * density.weights).sum()) == pytest.approx(float(x @ z) ** 2 / 4)


@pytest.mark.slow
def test_curvlinops_and_scipy_find_the_same_eigenvalues() -> None:
    curvlinops: Any = pytest.importorskip("curvlinops")
    linalg: Any = pytest.importorskip("scipy.sparse.linalg")
    model = small_net(dropout=0.0).eval()
    data = list(image_batches(2))
    weights = list(model.parameters())

    def loss_fn(batch: tuple[Tensor, Tensor]) -> sampa.Loss:
        z = model(batch[0])
        return sampa.Loss(F.cross_entropy(z, batch[1]), logits=z, targets=batch[1])

    operators = {
        "hessian": curvlinops.HessianLinearOperator,
        "gauss-newton": curvlinops.GGNLinearOperator,
    }
    for matrix in MATRICES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of curvlinops, about its own dependencies
            operator = operators[matrix](
                model, nn.CrossEntropyLoss(), weights, data, check_deterministic=False
            ).to_scipy()
            exact = linalg.eigsh(operator, k=4, which="LA", return_eigenvectors=False)
        found = flatness.hessian_eigenvalues(
            model, loss_fn, data, k=4, matrix=matrix, tolerance=1e-5
        )
        assert found.values == pytest.approx(sorted(exact.tolist(), reverse=True), rel=1e-4)


def test_gauss_newton_says_what_it_needs() -> None:
    model, data = net(), batches()

    def value_alone(batch: tuple[Tensor, Tensor]) -> Tensor:
        return F.cross_entropy(model(batch[0]), batch[1])

    def other_logits(batch: tuple[Tensor, Tensor]) -> sampa.Loss:
        z = model(batch[0])
        return sampa.Loss(F.cross_entropy(z, batch[1]), logits=z * 1.0)

    with pytest.raises(ValueError, match=r"Gauss-Newton matrix needs logits .* sampa\.Loss\("):
        flatness.hessian_eigenvalues(model, value_alone, data, matrix="gauss-newton")
    with pytest.raises(ValueError, match="the logits that the loss is computed from"):
        flatness.hessian_trace(model, other_logits, data, matrix="gauss-newton")


def test_a_layer_without_second_derivative_is_named_with_what_to_do() -> None:
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, *slopes: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
            return 2 * ctx.saved_tensors[0] * slopes[0]

    model = nn.Linear(2, 1)

    def loss_fn(batch: Tensor) -> Tensor:
        squared = Square.apply(model(batch))
        assert isinstance(squared, Tensor)
        return squared.square().mean()  # its slope depends on the weights

    x = torch.ones(3, 2)
    with pytest.raises(RuntimeError, match=r"a layer of the model has none .* use its plain form"):
        flatness.hessian_eigenvalues(model, loss_fn, [x])
    assert flatness.sharpness(model, loss_fn, [x]).value > 0


def test_attention_has_second_derivatives() -> None:
    """Its fused kernels have none; the explicit formula is the reference."""
    torch.manual_seed(0)
    model = nn.Linear(3, 9, bias=False).double()
    x = torch.randn(2, 4, 3, dtype=torch.float64)

    def loss(fused: bool) -> Tensor:
        q, k, v = model(x).chunk(3, dim=-1)
        if fused:
            return F.scaled_dot_product_attention(q, k, v).square().mean()
        return ((q @ k.mT / 3**0.5).softmax(-1) @ v).square().mean()

    plain, fused = (
        flatness.hessian_eigenvalues(
            model, lambda _, fused=fused: loss(fused), [x], k=3, tolerance=1e-9
        )
        for fused in (False, True)
    )
    assert fused.values == pytest.approx(plain.values, rel=1e-9)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated")
def test_a_compiled_model_is_measured_uncompiled() -> None:
    model, data = net(), batches()
    compiled = torch.compile(model, backend="aot_eager")
    assert isinstance(compiled, nn.Module)
    loss_of(compiled)(data[0])  # it is compiled by now
    expected = flatness.hessian_eigenvalues(model, loss_of(model), data, k=2)
    found = flatness.hessian_eigenvalues(compiled, loss_of(compiled), data, k=2)
    assert found.values == expected.values
