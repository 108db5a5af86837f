"""What to climb: the fresh gradient, an average of gradients, or the gradient less its average.

A direction is a function of the fresh gradient and its own memory (one vector, None at the start);
it returns the direction and the next memory. A tensor without a gradient is not climbed, and keeps
its memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from sampa.messages import require
from sampa.vectors.projections import without_noise
from sampa.vectors.vector import Vector, add, mix, restrict_to

Remembered = tuple[Vector, Vector | None]


class Direction(Protocol):
    """What to climb: a function of the gradient and of what the last call remembered."""

    def __call__(self, g: Vector, memory: Vector | None) -> Remembered: ...


@dataclass(frozen=True)
class Fresh:
    """d = g: SAM."""

    def __call__(self, g: Vector, memory: Vector | None) -> Remembered:
        return g, None


@dataclass(frozen=True)
class Average:
    """d_t = (1−θ) d_{t−1} + θ g_t with d_0 = g_0: VaSSO (Li and Giannakis, NeurIPS 2023)."""

    theta: float = 0.4

    def __post_init__(self) -> None:
        require("theta", self.theta, 0 < self.theta <= 1, "in (0, 1]")

    def __call__(self, g: Vector, memory: Vector | None) -> Remembered:
        d = g if memory is None else moving_average(memory, g, self.theta)
        return restrict_to(d, g), d


@dataclass(frozen=True)
class Residual:
    """d_t = g_t − σ m_{t−1}, then m_t = λ m_{t−1} + (1−λ) g_t: Friendly-SAM (Li et al., CVPR 2024).

    The first step takes d = m = g, as the authors' code does. The paper averages first; for σ = 1
    the direction is the same.
    """

    sigma: float = 1.0
    lmbda: float = 0.6

    def __post_init__(self) -> None:
        require("sigma", self.sigma, math.isfinite(self.sigma), "finite")
        require("lmbda", self.lmbda, 0 <= self.lmbda <= 1, "in [0, 1]")

    def __call__(self, g: Vector, memory: Vector | None) -> Remembered:
        if memory is None:
            return g, g
        d = add(g, restrict_to(memory, g), alpha=-self.sigma)
        d = without_noise(d, g)  # constant gradients: nothing to climb
        return d, moving_average(memory, g, 1 - self.lmbda)


def moving_average(memory: Vector, g: Vector, weight: float) -> Vector:
    """(1−w) memory + w g; a tensor that has no gradient keeps its memory."""
    if memory.pattern == g.pattern:
        return mix(memory, g, weight)
    return Vector(
        [
            m if g_i is None else g_i if m is None else (1 - weight) * m + weight * g_i
            for m, g_i in zip(memory, g, strict=True)
        ]
    )
