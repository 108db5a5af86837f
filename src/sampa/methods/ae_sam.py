"""AE-SAM: SAM when the squared gradient norm is unusually large (Jiang et al., ICLR 2023).

q       = ‖∇f(x_t; B_t)‖²
μ_t     = δ μ_{t−1} + (1−δ) q,   v_t = δ v_{t−1} + (1−δ) (q − μ_t)²,   c_t = (t/T) λ₁ + (1 − t/T) λ₂
q ≥ μ_t + c_t √v_t:  a SAM step;   otherwise:  a base step

The authors' code was not found; the rule was seen in others' code only. Without `total_steps` the
threshold stays in the middle between its two ends.
"""

from __future__ import annotations

from typing import Any

from sampa.messages import refuses_other_forms
from sampa.method import Rho
from sampa.methods.sam import SAMMethod
from sampa.optimizer import Bases, SharpnessAware
from sampa.pieces.when import LargeGradient


@refuses_other_forms
def AESAM(
    base: Bases,
    rho: Rho = 0.2,
    delta: float = 0.9,
    *,
    lambda1: float = -1.0,
    lambda2: float = 1.0,
    total_steps: int | None = None,
    **options: Any,
) -> SharpnessAware:
    """SAM when the squared gradient norm is unusually large, else the base optimizer.

    Defaults: SAMPa paper (rho, delta); lambdas not checked against the original.
    """
    large = LargeGradient(delta, lambda1, lambda2, total_steps)
    return SharpnessAware(base, SAMMethod(rho, when=large), **options)
