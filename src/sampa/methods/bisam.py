"""BiSAM: SAM that climbs a lower bound Q of the 0-1 loss (Xie et al., ICML 2024).

F_j     = z_j − z_y,   Q = mean over samples of (1/μ) log Σ_j exp(μ φ(F_j))
φ(v)    = 1 − log(1 + exp(log(e−1) − v))   ("log"),   tanh(α v)   ("tanh")
x̃       = x + ρ ∇Q / ‖∇Q‖
x_{t+1} = ModelUpdate(x, ∇f(x̃; B))

The authors' code leaves out 1/μ, which does not change the direction.
"""

from __future__ import annotations

from typing import Any, Literal

from sampa.messages import refuses_other_forms
from sampa.method import Rho
from sampa.methods.sam import SAMMethod
from sampa.optimizer import Bases, SharpnessAware
from sampa.pieces.losses import ZeroOneBound


@refuses_other_forms
def BiSAM(
    base: Bases,
    rho: Rho = 0.05,
    *,
    phi: Literal["log", "tanh"] = ZeroOneBound.phi,
    mu: float = ZeroOneBound.mu,
    alpha: float = ZeroOneBound.alpha,
    **options: Any,
) -> SharpnessAware:
    """SAM that climbs a lower bound of the 0-1 loss; `loss_fn` returns logits and targets.

    Defaults: SAMPa paper: -log, mu 1.
    """
    method = SAMMethod(rho, ascent_loss=ZeroOneBound(phi=phi, mu=mu, alpha=alpha))
    return SharpnessAware(base, method, **options)
