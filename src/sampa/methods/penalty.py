"""A penalty on the gradient norm (Zhao, Zhang, Hu, ICML 2022): minimize f + κ ‖∇f‖, α = κ/ρ.

g̃       = ∇f(x + ρ g / ‖g‖; B)
x_{t+1} = ModelUpdate(x, (1−α) g + α g̃), α may exceed 1

The authors' code mixes in g / ‖g‖ instead of g (`normalized=True`). The SAMPa paper writes
(1−λ) SAM + λ SGD: its λ is 1 − α.
"""

from __future__ import annotations

from typing import Any

from sampa.messages import refuses_other_forms
from sampa.method import Rho
from sampa.methods.sam import SAMMethod
from sampa.optimizer import Bases, SharpnessAware
from sampa.pieces.combines import Mix


@refuses_other_forms
def GradNormPenalty(
    base: Bases, rho: Rho = 0.1, alpha: float = 0.8, *, normalized: bool = False, **options: Any
) -> SharpnessAware:
    """A penalty on the gradient norm: (1−α) of the clean gradient, α of SAM's.

    `normalized=True` mixes in g / ‖g‖, as the authors' code does by default.

    Defaults: authors' recipes, and the SAMPa paper's 0.8 / 0.2 mix.
    """
    return SharpnessAware(base, SAMMethod(rho, combine=Mix(alpha, normalized)), **options)
