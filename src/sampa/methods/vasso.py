"""VaSSO: SAM along a moving average of gradients (Li and Giannakis, NeurIPS 2023).

d_t     = (1−θ) d_{t−1} + θ ∇f(x_t; B_t), d_0 the first gradient, as in the authors' code
x̃_t     = x_t + ρ d_t / ‖d_t‖
x_{t+1} = ModelUpdate(x_t, ∇f(x̃_t; B_t))
"""

from __future__ import annotations

from typing import Any

from sampa.messages import refuses_other_forms
from sampa.method import Rho
from sampa.methods.sam import SAMMethod
from sampa.optimizer import Bases, SharpnessAware
from sampa.pieces.directions import Average


@refuses_other_forms
def VaSSO(
    base: Bases, rho: Rho = 0.05, theta: float = Average.theta, **options: Any
) -> SharpnessAware:
    """SAM along a moving average of gradients; a smaller θ averages over more of them.

    Defaults: SAMPa paper (theta); authors' code has 0.9.
    """
    return SharpnessAware(base, SAMMethod(rho, direction=Average(theta)), **options)
