"""Curvature: eigenvalues, trace and spectral density of the Hessian or the Gauss-Newton matrix.

H = ∂²f/∂x², G = Jᵀ (∂²f/∂z²) J with J = ∂z/∂x the Jacobian of the logits z: G leaves out the
curvature of the network itself and is never negative for a convex loss. Both are known by their
products with vectors alone, of two gradients each, and need second derivatives of the model:
attention runs by its formula then, and a compiled model uncompiled.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from sampa.execution.evaluate import LossFn
from sampa.execution.randomness import derive_seed
from sampa.flatness.lanczos import Lanczos
from sampa.flatness.surface import Matrix, Surface
from sampa.messages import require, require_choice
from sampa.vectors.random import RandomNumbers
from sampa.vectors.vector import Vector, Weights, dot


@dataclass(frozen=True)
class Eigenvalues:
    """The largest eigenvalues.

    Attributes:
        values: In falling order.
        vectors: Their eigenvectors, of length 1.
        errors: Bounds: an eigenvalue of the matrix is that near to each.
        gradients: What they cost.
    """

    values: tuple[float, ...]
    vectors: tuple[Vector, ...]
    errors: tuple[float, ...]
    gradients: float


@dataclass(frozen=True)
class Trace:
    """The sum of all eigenvalues, estimated.

    Attributes:
        value: The mean of the samples.
        samples: zᵀ H z for random z.
        gradients: What it cost.
    """

    value: float
    samples: tuple[float, ...]
    gradients: float

    @property
    def standard_error(self) -> float:
        """Of the value; NaN for a single sample."""
        n = len(self.samples)
        if n < 2:
            return math.nan
        squares = math.fsum((s - self.value) ** 2 for s in self.samples)
        return math.sqrt(squares / (n - 1) / n)


@dataclass(frozen=True)
class Density:
    """The distribution of the eigenvalues, as points with weights.

    Attributes:
        nodes: Where, for each start a row.
        weights: How much of all eigenvalues; those of a row have the sum 1.
        gradients: What it cost.
    """

    nodes: Tensor
    weights: Tensor
    gradients: float

    def at(self, points: Tensor, width: float) -> Tensor:
        """The density with each node widened to a Gaussian of that standard deviation."""
        distances = (points.double()[:, None] - self.nodes.reshape(-1)) / width
        bells = torch.exp(-0.5 * distances.square()) / (width * math.sqrt(2 * math.pi))
        return bells @ self.weights.reshape(-1) / len(self.weights)


def hessian_eigenvalues(
    model: nn.Module,
    loss_fn: LossFn,
    batches: Iterable[Any],
    *,
    k: int = 1,
    matrix: Matrix = "hessian",
    tolerance: float = 1e-3,
    max_products: int = 100,
    training: bool = False,
    seed: int = 0,
) -> Eigenvalues:
    """The k largest eigenvalues, by Lanczos with full orthogonalization.

    Costs two gradients for each product: about 10 to 30 products for a few digits of the first
    eigenvalues, and as many vectors of memory.

    Args:
        model: The network, at the weights of interest.
        loss_fn: From a batch to the mean loss of its samples.
        batches: The samples.
        k: How many.
        matrix: "hessian", or "gauss-newton", for which `loss_fn` returns sampa.Loss(value,
            logits=z, targets=y).
        tolerance: Done when all error bounds are below this share of the largest eigenvalue.
        max_products: Done at the latest then; `errors` tell how far it came.
        training: Whether layers behave as in training.
        seed: Of the first vector.

    Raises:
        ValueError: If k is out of its range, or `loss_fn` gives too little.
        RuntimeError: If a layer has no second derivative.
    """
    surface = _checked(model, loss_fn, batches, matrix, training, seed)
    size = sum(w.numel() for w in surface.weights)
    most = min(max_products, size)
    require("k", k, 1 <= k <= most, f">= 1 and <= {most} (parameters and max_products)")
    random = RandomNumbers(derive_seed(seed, "flatness", "lanczos"))
    lanczos = Lanczos(partial(surface.product, matrix=matrix), random.normal(surface.weights))
    while True:
        lanczos.advance(lambda: random.normal(surface.weights, len(lanczos)))
        if len(lanczos) < k:
            continue
        values, vectors, errors = (t.flip(-1)[..., :k] for t in lanczos.ritz())
        # A closed space may hide eigenvalues of the one that is left: the next products tell.
        is_done = bool((errors <= tolerance * values.abs().max()).all()) and not lanczos.is_closed
        if is_done or len(lanczos) == most:
            break
    return Eigenvalues(
        values=tuple(values.tolist()),
        vectors=tuple(lanczos.vector(s) for s in vectors.T),
        errors=tuple(errors.tolist()),
        gradients=surface.gradients,
    )


def hessian_trace(
    model: nn.Module,
    loss_fn: LossFn,
    batches: Iterable[Any],
    *,
    matrix: Matrix = "hessian",
    draws: int = 10,
    training: bool = False,
    seed: int = 0,
) -> Trace:
    """The trace: the mean of zᵀ H z for random signs z (Hutchinson, 1990).

    Costs two gradients for each draw.
    """
    require("draws", draws, draws >= 1, ">= 1")
    surface = _checked(model, loss_fn, batches, matrix, training, seed)
    samples = []
    for draw in range(draws):
        z = random_signs(surface.weights, seed, draw)
        samples.append(float(dot(z, surface.product(z, matrix))))
    return Trace(math.fsum(samples) / draws, tuple(samples), surface.gradients)


def spectral_density(
    model: nn.Module,
    loss_fn: LossFn,
    batches: Iterable[Any],
    *,
    matrix: Matrix = "hessian",
    products: int = 30,
    draws: int = 1,
    training: bool = False,
    seed: int = 0,
) -> Density:
    """How all eigenvalues are distributed, by stochastic Lanczos quadrature.

    Each random start gives the eigenvalues of its tridiagonal matrix as nodes, and the squares of
    its eigenvectors' first entries as weights (Golub and Welsch; Ghorbani et al., ICML 2019).

    Costs 2 · draws · products gradients.
    """
    require("products", products, products >= 1, ">= 1")
    require("draws", draws, draws >= 1, ">= 1")
    surface = _checked(model, loss_fn, batches, matrix, training, seed)
    rows: list[tuple[Tensor, Tensor]] = []
    most = min(products, sum(w.numel() for w in surface.weights))
    for draw in range(draws):
        start = random_signs(surface.weights, seed, draw)
        lanczos = Lanczos(partial(surface.product, matrix=matrix), start)
        while len(lanczos) < most and not lanczos.is_closed:
            lanczos.advance()
        values, vectors, _ = lanczos.ritz()
        short = most - len(values)  # rows of one length: nodes without weight
        shares = vectors[0].square()
        rows.append(
            (torch.nn.functional.pad(values, (0, short)), nn.functional.pad(shares, (0, short)))
        )
    nodes, weights = (torch.stack(side) for side in zip(*rows, strict=True))
    return Density(nodes, weights, surface.gradients)


def random_signs(weights: Weights, seed: int, draw: int) -> Vector:
    """−1 and 1, each with probability ½, for the trainable weights."""
    uniform = RandomNumbers(derive_seed(seed, "flatness", "signs")).uniform(weights, draw)
    return Vector(
        None if u is None else torch.where(u < 0.5, -1.0, 1.0).to(w.dtype)
        for u, w in zip(uniform, weights, strict=True)
    )


def _checked(
    model: nn.Module,
    loss_fn: LossFn,
    batches: Iterable[Any],
    matrix: Matrix,
    training: bool,
    seed: int,
) -> Surface:
    require_choice("matrix", matrix, ("hessian", "gauss-newton"))
    return Surface(model, loss_fn, batches, training=training, seed=seed)
