"""Every method, built the same way: `Name(base, <its hyper-parameters>, executor=None)`.

The functions are named like classes because users meet them where torch has classes; each returns a
`SharpnessAware` optimizer. `METHODS` maps command-line names to them. Defaults are those of the
SAMPa paper where it lists one, else the authors'; docs/methods says which.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, Unpack

from torch.optim import Optimizer

from sampa.batches import MicroBatches
from sampa.checks import Rho, require
from sampa.combines import Combine, Mix, SurrogateGap, replace
from sampa.directions import Average, Direction, Fresh, Residual
from sampa.geometry import (
    Adaptive,
    FisherBall,
    Geometry,
    Only,
    Sphere,
    every_parameter,
    is_normalization,
    is_weight,
)
from sampa.layers import Selection
from sampa.losses import Objective, ZeroOneBound
from sampa.methods.async_sam import AsyncSAMMethod
from sampa.methods.base import BaseMethod
from sampa.methods.different_batches import SAMdbMethod
from sampa.methods.esam import ESAMMethod
from sampa.methods.multi_step import MultiStepSAMMethod
from sampa.methods.naive import (
    MomentumSAMMethod,
    OptSAMMethod,
    RandSAMMethod,
    gaussian_direction,
)
from sampa.methods.sam import RadiusFromRate, ReuseFlatDirection, SAMMethod, WSAMMethod
from sampa.methods.sampa import OptGDMethod, SAMPaMethod
from sampa.methods.shards import MicroBatchSAMMethod
from sampa.methods.sparse import Score, SparseSAMMethod
from sampa.methods.trajectory import MESAMethod, SAFMethod
from sampa.optimizer import Options, SharpnessAware
from sampa.probes import Context
from sampa.schedules import Coin, Every, LargeGradient, Probability
from sampa.vectors import Vector

Factory = Callable[..., SharpnessAware]


# ---- the base optimizer, SAM and SAMPa -------------------------------------------------------


def Base(base: Optimizer, **options: Unpack[Options]) -> SharpnessAware:
    """The base optimizer alone, in the same interface: the SGD and AdamW rows of tables."""
    return SharpnessAware(base, BaseMethod(), **options)


def SAM(
    base: Optimizer,
    rho: Rho = 0.05,
    *,
    geometry: Geometry = Sphere(),
    **options: Unpack[Options],
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
    **options: Unpack[Options],
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


def OptGD(base: Optimizer, **options: Unpack[Options]) -> SharpnessAware:
    """Optimistic gradient descent: SAMPa with λ = 1, one gradient a step."""
    return SharpnessAware(base, OptGDMethod(), **options)


def RandSAM(
    base: Optimizer,
    rho: Rho = 0.05,
    *,
    direction: Callable[[Context], Vector] = gaussian_direction,
    **options: Unpack[Options],
) -> SharpnessAware:
    """SAM with a random perturbation; does not converge even on a quadratic."""
    return SharpnessAware(base, RandSAMMethod(rho, direction), **options)


def OptSAM(base: Optimizer, rho: Rho = 0.05, **options: Unpack[Options]) -> SharpnessAware:
    """SAM that perturbs along the last perturbed gradient; does not converge, see the paper."""
    return SharpnessAware(base, OptSAMMethod(rho), **options)


def SAMdb(
    base: Optimizer,
    rho: Rho = 0.05,
    *,
    perturb_on: Literal["next", "previous"] = "next",
    **options: Unpack[Options],
) -> SharpnessAware:
    """SAM with its two gradients on different batches; worse than SAM, as the paper shows."""
    return SharpnessAware(base, SAMdbMethod(rho, perturb_on), **options)


# ---- other perturbations ---------------------------------------------------------------------


def ASAM(
    base: Optimizer,
    rho: Rho = 0.5,
    eta: float = 0.01,
    *,
    normalize_bias: bool = False,
    operator: Literal["element", "filter", "layer"] = "element",
    p: float = 2,
    **options: Unpack[Options],
) -> SharpnessAware:
    """SAM with the perturbation scaled by the size of each weight.

    `normalize_bias=True, eta=0` is the reading of davda54/sam and pytorch_optimizer.
    """
    select = every_parameter if normalize_bias else is_weight
    return SAM(base, rho, geometry=Adaptive(eta, select, operator, p), **options)


def OnNorms(select: Selection = is_normalization, inside: Geometry = Sphere()) -> Only:
    """SAM-ON's geometry: only normalization layers are perturbed."""
    return Only(select, inside)


def SAMON(
    base: Optimizer,
    rho: Rho = 0.5,
    *,
    select: Selection = is_normalization,
    inside: Geometry = Sphere(),
    **options: Unpack[Options],
) -> SharpnessAware:
    """SAM that perturbs normalization layers only; `inside=sampa.Adaptive()` is ASAM-ON."""
    return SAM(base, rho, geometry=OnNorms(select, inside), **options)


def FisherSAM(
    base: Optimizer,
    gamma: Rho = 0.1,
    eta: float = 1.0,
    *,
    euclidean: bool = False,
    **options: Unpack[Options],
) -> SharpnessAware:
    """SAM in a ball that the diagonal Fisher matrix measures; γ is the radius.

    `euclidean=True` gives the move the length γ, as another re-implementation does.
    """
    return SAM(base, gamma, geometry=FisherBall(eta, euclidean), **options)


def VaSSO(
    base: Optimizer, rho: Rho = 0.05, theta: float = 0.4, **options: Unpack[Options]
) -> SharpnessAware:
    """SAM along a moving average of gradients; a smaller θ averages over more of them."""
    return SharpnessAware(base, SAMMethod(rho, direction=Average(theta)), **options)


def FriendlySAM(
    base: Optimizer,
    rho: Rho = 0.1,
    sigma: float = 1.0,
    lmbda: float = 0.6,
    **options: Unpack[Options],
) -> SharpnessAware:
    """SAM along the gradient less its moving average."""
    return SharpnessAware(base, SAMMethod(rho, direction=Residual(sigma, lmbda)), **options)


def BiSAM(
    base: Optimizer,
    rho: Rho = 0.05,
    *,
    phi: Literal["log", "tanh"] = "log",
    mu: float = 1.0,
    alpha: float = 0.1,
    **options: Unpack[Options],
) -> SharpnessAware:
    """SAM that climbs a lower bound of the 0-1 loss; `loss_fn` returns logits and targets."""
    method = SAMMethod(rho, ascent_loss=ZeroOneBound(phi, mu, alpha))
    return SharpnessAware(base, method, **options)


def MicroBatchSAM(
    base: Optimizer,
    rho: Rho = 0.05,
    micro_batch_size: int = 32,
    *,
    num_shards: int | None = None,
    **options: Unpack[Options],
) -> SharpnessAware:
    """mSAM: one perturbation per micro-batch, given by their size or by their number."""
    require("micro_batch_size", micro_batch_size, micro_batch_size >= 1, ">= 1")
    require("num_shards", num_shards, num_shards is None or num_shards >= 1, ">= 1 or None")
    method = MicroBatchSAMMethod(rho, MicroBatches(micro_batch_size, num_shards))
    return SharpnessAware(base, method, **options)


def MultiStepSAM(
    base: Optimizer,
    rho: Rho = 0.05,
    steps: int = 3,
    *,
    project: bool = False,
    **options: Unpack[Options],
) -> SharpnessAware:
    """SAM that climbs in K steps of ρ/K, or of ρ with projection onto the ball."""
    return SharpnessAware(base, MultiStepSAMMethod(rho, steps, project), **options)


def MomentumSAM(
    base: Optimizer,
    rho: Rho = 3.0,
    *,
    decay_at: Literal["clean", "perturbed", "after"] = "clean",
    **options: Unpack[Options],
) -> SharpnessAware:
    """Perturb against the base optimizer's momentum: one gradient a step."""
    return SharpnessAware(base, MomentumSAMMethod(rho, decay_at), **options)


def AsyncSAM(
    base: Optimizer,
    rho: Rho = 0.05,
    tau: int = 1,
    *,
    ascent_share: float = 1.0,
    ascent_batch: Literal["previous", "next"] = "previous",
    **options: Unpack[Options],
) -> SharpnessAware:
    """SAM with a one-step-old ascent gradient, computed beside the descent gradient."""
    return SharpnessAware(base, AsyncSAMMethod(rho, tau, ascent_share, ascent_batch), **options)


def SparseSAM(
    base: Optimizer,
    rho: Rho = 0.1,
    sparsity: float = 0.5,
    *,
    mask: Literal["fisher", "dynamic"] = "fisher",
    update_freq: int = 1,
    num_samples: int = 16,
    drop_rate: float = 0.5,
    drop: Score = "gradient",
    growth: Score = "random",
    epochs: int | None = None,
    **options: Unpack[Options],
) -> SharpnessAware:
    """SSAM: SAM's perturbation on a sparse set of weights, by Fisher information or dynamic."""
    method = SparseSAMMethod(
        rho, sparsity, mask, update_freq, num_samples, drop_rate, drop, growth, epochs
    )
    return SharpnessAware(base, method, **options)


# ---- fewer gradients -------------------------------------------------------------------------


def LookSAM(
    base: Optimizer,
    rho: Rho = 0.05,
    k: int = 5,
    alpha: float = 0.7,
    *,
    per_tensor: bool = False,
    **options: Unpack[Options],
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
    **options: Unpack[Options],
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
    **options: Unpack[Options],
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
    **options: Unpack[Options],
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
    **options: Unpack[Options],
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
    **options: Unpack[Options],
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


# ---- other combinations of the two gradients -------------------------------------------------


def GradNormPenalty(
    base: Optimizer,
    rho: Rho = 0.1,
    alpha: float = 0.8,
    *,
    normalized: bool = False,
    **options: Unpack[Options],
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
    **options: Unpack[Options],
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
    **options: Unpack[Options],
) -> SharpnessAware:
    """SAM with the sharpness term weighted by γ / (1−γ), beside the base optimizer's step."""
    require("gamma", gamma, 0 <= gamma < 1, "in [0, 1)")
    if decouple:
        return SharpnessAware(base, WSAMMethod(rho, gamma), **options)
    return SharpnessAware(base, SAMMethod(rho, combine=Mix(gamma / (1 - gamma))), **options)


METHODS: dict[str, Factory] = {
    "base": Base,
    "sam": SAM,
    "sampa": SAMPa,
    "optgd": OptGD,
    "randsam": RandSAM,
    "optsam": OptSAM,
    "sam-db": SAMdb,
    "asam": ASAM,
    "msam": MicroBatchSAM,
    "sam-on": SAMON,
    "vasso": VaSSO,
    "bisam": BiSAM,
    "looksam": LookSAM,
    "ae-sam": AESAM,
    "saf": SAF,
    "mesa": MESA,
    "esam": ESAM,
    "rst": RST,
    "ssam-f": SparseSAM,
    "ssam-d": partial(SparseSAM, mask="dynamic"),
    "penalty": GradNormPenalty,
    "gsam": GSAM,
    "friendly-sam": FriendlySAM,
    "momentum-sam": MomentumSAM,
    "fisher-sam": FisherSAM,
    "wsam": WSAM,
    "async-sam": AsyncSAM,
    "multi-step-sam": MultiStepSAM,
    # SAMPa joined with another variant: its piece, ρ doubled as in the paper.
    "sampa-0": partial(SAMPa, rho=0.05, lam=0.0),
    "sampa+asam": partial(SAMPa, rho=1.0, geometry=Adaptive()),
    "sampa+msam": partial(SAMPa, micro_batches=MicroBatches()),
    "sampa+sam-on": partial(SAMPa, rho=1.0, geometry=OnNorms()),
    "sampa+vasso": partial(SAMPa, direction=Average()),
    "sampa+bisam": partial(SAMPa, ascent_loss=ZeroOneBound()),
}
