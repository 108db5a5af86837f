"""Every method, built the same way: `Name(base, <its hyper-parameters>, executor=None)`.

The functions are named like classes because users meet them where torch has classes; each returns a
`SharpnessAware` optimizer. `METHODS` maps command-line names to them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, Unpack

from torch.optim import Optimizer

from sampa.methods.base import BaseMethod
from sampa.methods.naive import OptSAMMethod, RandSAMMethod, gaussian_direction
from sampa.methods.sam import SAMdbMethod, SAMMethod
from sampa.methods.sampa import OptGDMethod, SAMPaMethod
from sampa.optimizer import Options, SharpnessAware
from sampa.probes import Context, Rho
from sampa.vectors import Vector

Factory = Callable[..., SharpnessAware]


def Base(base: Optimizer, **options: Unpack[Options]) -> SharpnessAware:
    """The base optimizer alone, in the same interface: the SGD and AdamW rows of tables."""
    return SharpnessAware(base, BaseMethod(), **options)


def SAM(base: Optimizer, rho: Rho = 0.05, **options: Unpack[Options]) -> SharpnessAware:
    """Sharpness-aware minimization: the gradient at x + ρ g / ‖g‖, two in sequence."""
    return SharpnessAware(base, SAMMethod(rho), **options)


def SAMdb(
    base: Optimizer,
    rho: Rho = 0.05,
    perturb_on: Literal["next", "previous"] = "next",
    **options: Unpack[Options],
) -> SharpnessAware:
    """SAM with its two gradients on different batches; worse than SAM, as the paper shows."""
    return SharpnessAware(base, SAMdbMethod(rho, perturb_on), **options)


def SAMPa(
    base: Optimizer,
    rho: Rho = 0.1,
    lam: float = 0.2,
    bootstrap: Literal["paper", "script"] = "paper",
    bn_pass: Literal["lookahead", "perturbed"] = "lookahead",
    **options: Unpack[Options],
) -> SharpnessAware:
    """SAM parallelized: the two gradients of a step run at the same time on two devices.

    Args:
        base: Any torch optimizer.
        rho: Perturbation radius. The paper takes twice SAM's for λ = 0.2, and SAM's for λ = 0.
        lam: λ in [0, 1], the share of the gradient at y. 0 is the case with a convergence proof.
        bootstrap: How the first batch is used: as in the paper, or as in the published script.
        bn_pass: The pass whose BatchNorm statistics count; "perturbed" is the published script's.
        **options: See `sampa.Options`.
    """
    return SharpnessAware(base, SAMPaMethod(rho, lam, bootstrap, bn_pass), **options)


def OptGD(base: Optimizer, **options: Unpack[Options]) -> SharpnessAware:
    """Optimistic gradient descent: SAMPa with λ = 1, one gradient a step."""
    return SharpnessAware(base, OptGDMethod(), **options)


def RandSAM(
    base: Optimizer,
    rho: Rho = 0.05,
    direction: Callable[[Context], Vector] = gaussian_direction,
    **options: Unpack[Options],
) -> SharpnessAware:
    """SAM with a random perturbation; does not converge even on a quadratic."""
    return SharpnessAware(base, RandSAMMethod(rho, direction), **options)


def OptSAM(base: Optimizer, rho: Rho = 0.05, **options: Unpack[Options]) -> SharpnessAware:
    """SAM that perturbs along the last perturbed gradient; does not converge, see the paper."""
    return SharpnessAware(base, OptSAMMethod(rho), **options)


METHODS: dict[str, Factory] = {
    "base": Base,
    "sam": SAM,
    "sam-db": SAMdb,
    "sampa": SAMPa,
    "sampa-0": partial(SAMPa, lam=0.0, rho=0.05),
    "optgd": OptGD,
    "randsam": RandSAM,
    "optsam": OptSAM,
}
