"""Other combinations of the clean and the perturbed gradient."""

from __future__ import annotations

from typing import Any

from torch.optim import Optimizer

from sampa.messages import Rho, require
from sampa.methods.sam import RadiusFromRate, SAMMethod, WSAMMethod
from sampa.optimizer import SharpnessAware
from sampa.pieces.combines import Mix, SurrogateGap


def GradNormPenalty(
    base: Optimizer,
    rho: Rho = 0.1,
    alpha: float = 0.8,
    *,
    normalized: bool = False,
    **options: Any,
) -> SharpnessAware:
    """A penalty on the gradient norm: (1−α) of the clean gradient, α of SAM's.

    `normalized=True` mixes in g / ‖g‖, as the authors' code does by default.
    """
    return SharpnessAware(base, SAMMethod(rho, combine=Mix(alpha, normalized)), **options)


def GSAM(
    base: Optimizer,
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
    """
    both = (rho_min is None) == (lr_max is None)
    require("lr_max", lr_max, both, "given together with rho_min")
    schedule = None
    if rho_min is not None and lr_max is not None:
        schedule = RadiusFromRate(rho_min, lr_max, lr_min)
    method = SAMMethod(rho, combine=SurrogateGap(alpha, minimize_fp), radius=schedule)
    return SharpnessAware(base, method, **options)


def WSAM(
    base: Optimizer,
    rho: Rho = 0.05,
    gamma: float = 0.9,
    *,
    decouple: bool = True,
    **options: Any,
) -> SharpnessAware:
    """SAM with the sharpness term weighted by γ / (1−γ), beside the base optimizer's step."""
    require("gamma", gamma, 0 <= gamma < 1, "in [0, 1)")
    if decouple:
        return SharpnessAware(base, WSAMMethod(rho, gamma), **options)
    return SharpnessAware(base, SAMMethod(rho, combine=Mix(gamma / (1 - gamma))), **options)
