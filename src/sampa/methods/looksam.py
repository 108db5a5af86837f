"""LookSAM: SAM every k steps, a stored direction between them (Liu et al., CVPR 2022).

t mod k = 0:  g̃ = ∇f(x + ρ g / ‖g‖; B),   g_v = g̃ − (⟨g̃, g⟩ / ‖g‖²) g,   G = g̃
otherwise:    G = g + α (‖g‖ / ‖g_v‖) g_v
x_{t+1} = ModelUpdate(x, G)

The authors' repository has no code. Inner products and norms are global, as in the paper; some
published code takes each tensor on its own (`per_tensor`). Where g_v is zero up to rounding the
step is the base step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from sampa.messages import refuses_other_forms, require
from sampa.method import Rho
from sampa.methods.sam import SAMMethod
from sampa.optimizer import Bases, SharpnessAware
from sampa.pieces.when import Every
from sampa.vectors.projections import each_tensor, orthogonal_part
from sampa.vectors.vector import Vector, add, restrict_to


@dataclass(frozen=True)
class ReuseFlatDirection:
    """G = g + α (‖g‖ / ‖g_v‖) g_v between two SAM steps."""

    alpha: float
    per_tensor: bool = False

    def __post_init__(self) -> None:
        require("alpha", self.alpha, math.isfinite(self.alpha), "finite")

    def remember(self, g: Vector, g_tilde: Vector) -> Vector:
        if self.per_tensor:
            return each_tensor(orthogonal_part, g_tilde, g)
        return orthogonal_part(g_tilde, g)  # g_v = g̃ − (⟨g̃, g⟩ / ‖g‖²) g

    def __call__(self, g: Vector, flat: Vector | None) -> Vector:
        if flat is None:
            return g
        flat = restrict_to(flat, g)
        return each_tensor(self._reused, g, flat) if self.per_tensor else self._reused(g, flat)

    def _reused(self, g: Vector, flat: Vector) -> Vector:
        share = torch.where(flat.norm > 0, self.alpha * g.norm / flat.norm, 0.0)
        return add(g, flat, alpha=share)


@refuses_other_forms
def LookSAM(
    base: Bases,
    rho: Rho = 0.05,
    k: int = 5,
    alpha: float = 0.7,
    *,
    per_tensor: bool = False,
    **options: Any,
) -> SharpnessAware:
    """SAM every k steps; between them the stored flat direction is reused.

    α = 0.7 was tuned for ViT; for ResNets on CIFAR the Momentum-SAM authors report that 0.1 suits.

    Defaults: SAMPa paper (k, alpha); alpha was tuned for ViT.
    """
    method = SAMMethod(rho, when=Every(k), between=ReuseFlatDirection(alpha, per_tensor))
    return SharpnessAware(base, method, **options)
