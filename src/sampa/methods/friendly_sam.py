"""Friendly-SAM: SAM along the gradient less its moving average (Li et al., CVPR 2024).

d_t     = g_t − σ m_{t−1},   m_t = λ m_{t−1} + (1−λ) g_t,   d_0 = m_0 = g_0
x̃_t     = x_t + ρ d_t / ‖d_t‖
x_{t+1} = ModelUpdate(x_t, ∇f(x̃_t; B_t))

As in the authors' code. The paper averages first; for σ = 1 the direction is the same.
"""

from __future__ import annotations

from typing import Any

from sampa.messages import refuses_other_forms
from sampa.method import Rho
from sampa.methods.sam import SAMMethod
from sampa.optimizer import Bases, SharpnessAware
from sampa.pieces.directions import Residual


@refuses_other_forms
def FriendlySAM(
    base: Bases,
    rho: Rho = 0.1,
    sigma: float = Residual.sigma,
    lmbda: float = Residual.lmbda,
    **options: Any,
) -> SharpnessAware:
    """SAM along the gradient less its moving average.

    Defaults: authors' published run (lmbda), script (rho).
    """
    return SharpnessAware(base, SAMMethod(rho, direction=Residual(sigma, lmbda)), **options)
