"""GSAM: SAM's gradient less α of the clean one's orthogonal part (Zhuang et al., ICLR 2022).

ρ_t     = ρ_min + (ρ − ρ_min) (η_t − η_min) / (η_max − η_min), or constant
g̃       = ∇f(x + ρ_t g / ‖g‖; B),   g⊥ = g − (⟨g, g̃⟩ / ‖g̃‖²) g̃
x_{t+1} = ModelUpdate(x, g̃ − α g⊥)

The authors' other published code has a second form, g + α times the part of g̃ orthogonal to g
(`minimize_fp=False`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from sampa.messages import refuses_other_forms, require
from sampa.method import Context, Rho
from sampa.methods.sam import SAMMethod
from sampa.optimizer import Bases, SharpnessAware
from sampa.pieces.combines import SurrogateGap


@dataclass(frozen=True)
class RadiusFromRate:
    """ρ_t = ρ_min + (ρ − ρ_min) (η_t − η_min) / (η_max − η_min)."""

    rho_min: float
    lr_max: float
    lr_min: float

    def __post_init__(self) -> None:
        require("rho_min", self.rho_min, self.rho_min >= 0, ">= 0")
        require("lr_max", self.lr_max, self.lr_max >= self.lr_min, f">= lr_min = {self.lr_min}")

    def __call__(self, context: Context) -> Context:
        span = self.lr_max - self.lr_min
        shares = [1.0 if span == 0 else (lr - self.lr_min) / span for lr in context.groups.lr]
        pairs = zip(context.groups.rho, shares, strict=True)
        rhos = [self.rho_min + (rho - self.rho_min) * share for rho, share in pairs]
        for rho in rhos:
            if not isinstance(rho, Tensor):  # one on a device is not waited for
                require("rho at this learning rate", rho, rho >= 0, "finite and >= 0; lower lr_min")
        return replace(context, groups=replace(context.groups, rho=rhos))


@refuses_other_forms
def GSAM(
    base: Bases,
    rho: Rho = 0.04,
    alpha: float = 0.01,
    *,
    rho_min: float | None = None,
    lr_max: float | None = None,
    lr_min: float = 0.0,
    minimize_fp: bool = True,
    **options: Any,
) -> SharpnessAware:
    """SAM's gradient less α of the clean gradient's orthogonal part.

    With `rho_min` and `lr_max` the radius goes from ρ to ρ_min as the learning rate falls.

    Defaults: third-party report of the ResNet setting.
    """
    both = (rho_min is None) == (lr_max is None)
    require("lr_max", lr_max, both, "given together with rho_min")
    radius = None
    if rho_min is not None and lr_max is not None:
        radius = RadiusFromRate(rho_min, lr_max, lr_min)
    method = SAMMethod(rho, combine=SurrogateGap(alpha, minimize_fp), radius=radius)
    return SharpnessAware(base, method, **options)
