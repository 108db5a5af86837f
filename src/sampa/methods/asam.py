"""ASAM: a perturbation scaled by the size of the weights (Kwon et al., ICML 2021).

T       = |x| + η on the selected tensors, 1 elsewhere
x̃       = x + ρ T² g / ‖T g‖   (p = 2),   x + ρ T sign(g)   (p = ∞)
x_{t+1} = ModelUpdate(x, ∇f(x̃; B))

T is as in the authors' code, on tensors whose name contains "weight". davda54/sam and
pytorch_optimizer take T = |x| on every tensor (`normalize_bias=True, eta=0`).
"""

from __future__ import annotations

from typing import Any, Literal

from sampa.messages import refuses_other_forms
from sampa.method import Rho
from sampa.methods.sam import SAMMethod
from sampa.optimizer import Bases, SharpnessAware
from sampa.pieces.geometry import Adaptive, every_parameter, is_weight


@refuses_other_forms
def ASAM(
    base: Bases,
    rho: Rho = 0.5,
    eta: float = Adaptive.eta,
    *,
    normalize_bias: bool = False,
    operator: Literal["element", "filter", "layer"] = Adaptive.operator,
    p: float = Adaptive.p,
    **options: Any,
) -> SharpnessAware:
    """SAM with the perturbation scaled by the size of each weight.

    `normalize_bias=True, eta=0` is the reading of davda54/sam and pytorch_optimizer.

    Defaults: SAMPa paper (rho), authors' code (eta).
    """
    select = every_parameter if normalize_bias else is_weight
    geometry = Adaptive(eta=eta, select=select, operator=operator, p=p)
    return SharpnessAware(base, SAMMethod(rho, geometry=geometry), **options)
