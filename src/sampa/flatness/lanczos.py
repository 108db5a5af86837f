"""Lanczos' recurrence on vectors: a symmetric matrix, known by its products, as a tridiagonal one.

A Q = Q T + β q eᵀ, with the columns of Q orthonormal (Lanczos, 1950). Every new vector is made
orthogonal to all before, twice: without that, rounding brings found eigenvalues back as copies.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sampa.vectors.vector import Vector, add, dot, scale, weighted_sum

Product = Callable[[Vector], Vector]

# A remainder of this many units in the last place of the matrix's size is rounding: the space found
# is invariant.
NOISE_FACTOR = 100


class Lanczos:
    """The recurrence, advanced by one product at a time.

    Attributes:
        basis: q_1, q_2, ...: the last one has not been multiplied yet.
        is_closed: Whether the basis without the last vector spans an invariant space.
    """

    def __init__(self, product: Product, start: Vector) -> None:
        self.basis = [scale(start, 1 / float(start.norm))]
        self.is_closed = False
        self._product = product
        self._precision = max(torch.finfo(t.dtype).eps for t in start.present)
        self._alphas: list[float] = []
        self._betas: list[float] = []

    def __len__(self) -> int:
        """Products made so far."""
        return len(self._alphas)

    def advance(self, fresh: Callable[[], Vector] | None = None) -> None:
        """One product more.

        Args:
            fresh: A random vector to go on with in the space that is left, once one is closed.
        """
        q = self.basis[-1]
        image = self._product(q)
        self._alphas.append(float(dot(image, q)))
        rest = self._orthogonal(image)
        size = max(map(abs, (*self._alphas, *self._betas)))
        beta = float(rest.norm)
        self.is_closed = beta <= NOISE_FACTOR * self._precision * size
        if self.is_closed:
            rest, beta = (self._orthogonal(fresh()) if fresh is not None else rest), 0.0
        self._betas.append(beta)
        length = float(rest.norm)
        self.basis.append(scale(rest, 1 / length if length > 0 else 0.0))

    def _orthogonal(self, v: Vector) -> Vector:
        for _ in range(2):
            for q in self.basis:
                v = add(v, q, alpha=-float(dot(v, q)))
        return v

    def ritz(self) -> tuple[Tensor, Tensor, Tensor]:
        """Eigenvalues of T in rising order, its eigenvectors, and the bounds of their errors."""
        t = torch.diag(torch.tensor(self._alphas, dtype=torch.float64))
        betas = torch.tensor(self._betas[:-1], dtype=torch.float64)
        t += torch.diag(betas, 1) + torch.diag(betas, -1)
        values, vectors = torch.linalg.eigh(t)
        return values, vectors, (self._betas[-1] * vectors[-1]).abs()  # |β s_m|

    def vector(self, coordinates: Tensor) -> Vector:
        """The vector with these coordinates in the basis."""
        return weighted_sum(self.basis[: len(self)], coordinates.tolist())
