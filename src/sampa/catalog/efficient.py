"""Fewer gradients, or cheaper ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

from torch.optim import Optimizer

from sampa.messages import Rho, require
from sampa.method import Context
from sampa.methods.esam import ESAMMethod
from sampa.methods.sam import ReuseFlatDirection, SAMMethod
from sampa.methods.trajectory import MESAMethod, SAFMethod
from sampa.optimizer import SharpnessAware
from sampa.pieces.combines import Combine, Mix, replace
from sampa.pieces.when import Coin, Every, LargeGradient, Probability


def LookSAM(
    base: Optimizer,
    rho: Rho = 0.05,
    k: int = 5,
    alpha: float = 0.7,
    *,
    per_tensor: bool = False,
    **options: Any,
) -> SharpnessAware:
    """SAM every k steps; between them the stored flat direction is reused.

    α = 0.7 was tuned for ViT; for ResNets on CIFAR the Momentum-SAM authors report that 0.1 suits.
    """
    method = SAMMethod(rho, when=Every(k), between=ReuseFlatDirection(alpha, per_tensor))
    return SharpnessAware(base, method, **options)


def AESAM(
    base: Optimizer,
    rho: Rho = 0.2,
    delta: float = 0.9,
    *,
    lambda1: float = -1.0,
    lambda2: float = 1.0,
    total_steps: int | None = None,
    **options: Any,
) -> SharpnessAware:
    """SAM when the squared gradient norm is unusually large, else the base optimizer."""
    policy = LargeGradient(delta, lambda1, lambda2, total_steps)
    return SharpnessAware(base, SAMMethod(rho, when=policy), **options)


def RST(
    base: Optimizer,
    rho: Rho = 0.05,
    p: float = 0.6,
    *,
    schedule: str = "constant",
    total_steps: int | None = None,
    gamma: float | None = None,
    coins: Sequence[bool] | None = None,
    normalized: bool = False,
    warmup: int = 0,
    **options: Any,
) -> SharpnessAware:
    """SAM or the base optimizer by a coin; with `gamma`, G-RST's mix in place of SAM's gradient.

    `normalized=True` mixes in g / ‖g‖, as the authors' code does by default.
    """
    require("gamma", gamma, gamma is None or math.isfinite(gamma), "finite or None")
    combine: Combine = replace if gamma is None else Mix(gamma, normalized)
    policy = Coin(Probability(p, schedule, total_steps), coins, warmup)
    return SharpnessAware(base, SAMMethod(rho, when=policy, combine=combine), **options)


def ESAM(
    base: Optimizer,
    rho: Rho = 0.05,
    beta: float = 0.5,
    gamma: float = 1.0,
    *,
    swp: Literal["tensor", "element"] = "tensor",
    subset: Callable[[Context], Sequence[bool]] | None = None,
    **options: Any,
) -> SharpnessAware:
    """SAM on a random subset of tensors and, with γ < 1, on the hardest samples.

    γ < 1 (SDS) needs `per_sample` losses from `loss_fn`.
    """
    return SharpnessAware(base, ESAMMethod(rho, beta, gamma, swp, subset), **options)


def SAF(
    base: Optimizer,
    lam: float = 0.3,
    tau: float = 5.0,
    start_epoch: int = 5,
    *,
    end_epoch: int | None = None,
    gap: int = 3,
    scale_tau2: bool = True,
    **options: Any,
) -> SharpnessAware:
    """No perturbation: KL to the logits recorded some epochs ago; needs `logits` and `index`."""
    method = SAFMethod(
        lam=lam,
        tau=tau,
        start_epoch=start_epoch,
        end_epoch=end_epoch,
        gap=gap,
        scale_tau2=scale_tau2,
    )
    return SharpnessAware(base, method, **options)


def MESA(
    base: Optimizer,
    lam: float = 0.8,
    tau: float = 5.0,
    start_epoch: int = 5,
    *,
    end_epoch: int | None = None,
    decay: float = 0.9995,
    scale_tau2: bool = True,
    **options: Any,
) -> SharpnessAware:
    """No perturbation: KL to the logits of an averaged model; needs `logits`."""
    method = MESAMethod(
        lam=lam,
        tau=tau,
        start_epoch=start_epoch,
        end_epoch=end_epoch,
        decay=decay,
        scale_tau2=scale_tau2,
    )
    return SharpnessAware(base, method, **options)
