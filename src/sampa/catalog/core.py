"""The base optimizer, SAM and SAMPa, and the paper's naive attempts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from torch.optim import Optimizer

from sampa.batches import MicroBatches
from sampa.losses import Objective
from sampa.messages import Rho
from sampa.method import Context
from sampa.methods.base import BaseMethod
from sampa.methods.different_batches import SAMdbMethod
from sampa.methods.naive import (
    OptSAMMethod,
    RandSAMMethod,
    gaussian_direction,
)
from sampa.methods.sam import SAMMethod
from sampa.methods.sampa import OptGDMethod, SAMPaMethod
from sampa.optimizer import SharpnessAware
from sampa.pieces.directions import Direction, Fresh
from sampa.pieces.geometry import (
    Geometry,
    Sphere,
)
from sampa.vectors.vector import Vector


def Base(base: Optimizer, **options: Any) -> SharpnessAware:
    """The base optimizer alone, in the same interface: the SGD and AdamW rows of tables."""
    return SharpnessAware(base, BaseMethod(), **options)


def SAM(
    base: Optimizer,
    rho: Rho = 0.05,
    *,
    geometry: Geometry = Sphere(),
    **options: Any,
) -> SharpnessAware:
    """Sharpness-aware minimization: the gradient at x + ρ g / ‖g‖, two in sequence."""
    return SharpnessAware(base, SAMMethod(rho, geometry=geometry), **options)


def SAMPa(
    base: Optimizer,
    rho: Rho = 0.1,
    lam: float = 0.2,
    *,
    direction: Direction = Fresh(),
    geometry: Geometry = Sphere(),
    ascent_loss: Objective | None = None,
    shared_gradient: bool = False,
    micro_batches: MicroBatches | None = None,
    bootstrap: Literal["paper", "script"] = "paper",
    bn_pass: Literal["lookahead", "perturbed"] = "lookahead",
    **options: Any,
) -> SharpnessAware:
    """SAM parallelized: the two gradients of a step run at the same time on two devices.

    Args:
        base: Any torch optimizer.
        rho: Perturbation radius. The paper takes twice SAM's for λ = 0.2, and SAM's for λ = 0.
        lam: λ in [0, 1], the share of the gradient at y. 0 is the case with a convergence proof.
        direction: What to climb; `sampa.Average(theta)` joins SAMPa with VaSSO.
        geometry: How far; `sampa.Adaptive()` joins it with ASAM, `sampa.OnNorms()` with SAM-ON.
        ascent_loss: The loss to climb; `sampa.ZeroOneBound()` joins it with BiSAM.
        shared_gradient: With an ascent loss, use its gradient in all roles (one probe less).
        micro_batches: One perturbation each; `sampa.MicroBatches(32)` joins it with mSAM.
        bootstrap: How the first batch is used: as in the paper, or as in the published script.
        bn_pass: The pass whose BatchNorm statistics count; "perturbed" is the published script's.
        **options: See `sampa.Options`.
    """
    method = SAMPaMethod(
        rho,
        lam,
        direction,
        geometry,
        ascent_loss,
        shared_gradient,
        micro_batches,
        bootstrap,
        bn_pass,
    )
    return SharpnessAware(base, method, **options)


def OptGD(base: Optimizer, **options: Any) -> SharpnessAware:
    """Optimistic gradient descent: SAMPa with λ = 1, one gradient a step."""
    return SharpnessAware(base, OptGDMethod(), **options)


def RandSAM(
    base: Optimizer,
    rho: Rho = 0.05,
    *,
    direction: Callable[[Context], Vector] = gaussian_direction,
    **options: Any,
) -> SharpnessAware:
    """SAM with a random perturbation; does not converge even on a quadratic."""
    return SharpnessAware(base, RandSAMMethod(rho, direction), **options)


def OptSAM(base: Optimizer, rho: Rho = 0.05, **options: Any) -> SharpnessAware:
    """SAM that perturbs along the last perturbed gradient; does not converge, see the paper."""
    return SharpnessAware(base, OptSAMMethod(rho), **options)


def SAMdb(
    base: Optimizer,
    rho: Rho = 0.05,
    *,
    perturb_on: Literal["next", "previous"] = "next",
    **options: Any,
) -> SharpnessAware:
    """SAM with its two gradients on different batches; worse than SAM, as the paper shows."""
    return SharpnessAware(base, SAMdbMethod(rho, perturb_on), **options)
