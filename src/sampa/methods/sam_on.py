"""SAM-ON: only normalization layers are perturbed (Mueller et al., NeurIPS 2023).

g_N     = ∇f(x; B) on the parameters of normalization layers
x̃       = x + ρ g_N / ‖g_N‖ on those parameters, x elsewhere
x_{t+1} = ModelUpdate(x, ∇f(x̃; B))

The authors' code selects by "norm" or "bn" in a parameter's name; here the layer's type decides.
"""

from __future__ import annotations

from typing import Any

from sampa.messages import refuses_other_forms
from sampa.method import Rho, Selection
from sampa.methods.sam import SAMMethod
from sampa.optimizer import Bases, SharpnessAware
from sampa.pieces.geometry import Geometry, Only, Sphere, is_normalization


def OnNorms(select: Selection = is_normalization, inside: Geometry = Sphere()) -> Only:
    """SAM-ON's geometry: only normalization layers are perturbed."""
    return Only(select, inside)


@refuses_other_forms
def SAMON(
    base: Bases,
    rho: Rho = 0.5,
    *,
    select: Selection = is_normalization,
    inside: Geometry = Sphere(),
    **options: Any,
) -> SharpnessAware:
    """SAM that perturbs normalization layers only; `inside=sampa.Adaptive()` is ASAM-ON.

    Defaults: SAMPa paper.
    """
    return SharpnessAware(base, SAMMethod(rho, geometry=OnNorms(select, inside)), **options)
