"""From the clean gradient g and the perturbed one g̃ to the gradient that is handed on."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from sampa.messages import require
from sampa.vectors.projections import orthogonal_part
from sampa.vectors.vector import Vector, add, mix, scale

Combine = Callable[[Vector, Vector], Vector]


def replace_gradient(g: Vector, g_tilde: Vector) -> Vector:
    """G = g̃: SAM."""
    return g_tilde


@dataclass(frozen=True)
class Mix:
    """G = (1−α) g + α g̃: the gradient-norm penalty, G-RST, coupled WSAM. α may exceed 1.

    `normalized` mixes in g / ‖g‖ instead of g, as the gnp code does by default.
    """

    alpha: float
    normalized: bool = False

    def __post_init__(self) -> None:
        require("alpha", self.alpha, math.isfinite(self.alpha), "finite")

    def __call__(self, g: Vector, g_tilde: Vector) -> Vector:
        if self.normalized:
            g = scale(g, torch.where(g.norm > 0, 1 / g.norm, 1.0))
        return mix(g, g_tilde, self.alpha)


@dataclass(frozen=True)
class SurrogateGap:
    """G = g̃ − α g⊥, with g⊥ the part of g orthogonal to g̃: GSAM (Zhuang et al., ICLR 2022).

    With `minimize_fp=False`, G = g + α g̃⊥ with g̃⊥ the part of g̃ orthogonal to g, as the authors'
    other published code offers.
    """

    alpha: float
    minimize_fp: bool = True

    def __post_init__(self) -> None:
        require("alpha", self.alpha, math.isfinite(self.alpha), "finite")

    def __call__(self, g: Vector, g_tilde: Vector) -> Vector:
        if not self.minimize_fp:
            return add(g, orthogonal_part(g_tilde, g), alpha=self.alpha)
        return add(g_tilde, orthogonal_part(g, g_tilde), alpha=-self.alpha)
