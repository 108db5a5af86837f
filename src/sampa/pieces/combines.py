"""From the clean gradient g and the perturbed one g̃ to the gradient that is handed on."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from sampa.messages import require
from sampa.vectors.vector import Vector, add, mix, orthogonal_part, scale

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
        clean = scale(g, 1 / g.norm) if self.normalized and g.norm > 0 else g
        return mix(clean, g_tilde, self.alpha)


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
            tilde_perp = orthogonal_part(g_tilde, g)
            return g if tilde_perp is None else add(g, tilde_perp, alpha=self.alpha)
        g_perp = orthogonal_part(g, g_tilde)
        return g_tilde if g_perp is None else add(g_tilde, g_perp, alpha=-self.alpha)
