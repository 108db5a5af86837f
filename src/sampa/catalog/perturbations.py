"""SAM with other perturbations: where to, how far, along what."""

from __future__ import annotations

from typing import Any, Literal

from torch.optim import Optimizer

from sampa.batches import MicroBatches
from sampa.catalog.core import SAM
from sampa.losses import ZeroOneBound
from sampa.messages import Rho, require
from sampa.method import Selection
from sampa.methods.async_sam import AsyncSAMMethod
from sampa.methods.multi_step import MultiStepSAMMethod
from sampa.methods.naive import (
    MomentumSAMMethod,
)
from sampa.methods.sam import SAMMethod
from sampa.methods.shards import MicroBatchSAMMethod
from sampa.methods.sparse import Score, SparseSAMMethod
from sampa.optimizer import SharpnessAware
from sampa.pieces.directions import Average, Residual
from sampa.pieces.geometry import (
    Adaptive,
    FisherBall,
    Geometry,
    Only,
    Sphere,
    every_parameter,
    is_normalization,
    is_weight,
)


def ASAM(
    base: Optimizer,
    rho: Rho = 0.5,
    eta: float = 0.01,
    *,
    normalize_bias: bool = False,
    operator: Literal["element", "filter", "layer"] = "element",
    p: float = 2,
    **options: Any,
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
    **options: Any,
) -> SharpnessAware:
    """SAM that perturbs normalization layers only; `inside=sampa.Adaptive()` is ASAM-ON."""
    return SAM(base, rho, geometry=OnNorms(select, inside), **options)


def FisherSAM(
    base: Optimizer,
    gamma: Rho = 0.1,
    eta: float = 1.0,
    *,
    euclidean: bool = False,
    **options: Any,
) -> SharpnessAware:
    """SAM in a ball that the diagonal Fisher matrix measures; γ is the radius.

    `euclidean=True` gives the move the length γ, as another re-implementation does.
    """
    return SAM(base, gamma, geometry=FisherBall(eta, euclidean), **options)


def VaSSO(base: Optimizer, rho: Rho = 0.05, theta: float = 0.4, **options: Any) -> SharpnessAware:
    """SAM along a moving average of gradients; a smaller θ averages over more of them."""
    return SharpnessAware(base, SAMMethod(rho, direction=Average(theta)), **options)


def FriendlySAM(
    base: Optimizer,
    rho: Rho = 0.1,
    sigma: float = 1.0,
    lmbda: float = 0.6,
    **options: Any,
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
    **options: Any,
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
    **options: Any,
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
    **options: Any,
) -> SharpnessAware:
    """SAM that climbs in K steps of ρ/K, or of ρ with projection onto the ball."""
    return SharpnessAware(base, MultiStepSAMMethod(rho, steps, project), **options)


def MomentumSAM(
    base: Optimizer,
    rho: Rho = 3.0,
    *,
    decay_at: Literal["clean", "perturbed", "after"] = "clean",
    **options: Any,
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
    **options: Any,
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
    **options: Any,
) -> SharpnessAware:
    """SSAM: SAM's perturbation on a sparse set of weights, by Fisher information or dynamic."""
    method = SparseSAMMethod(
        rho, sparsity, mask, update_freq, num_samples, drop_rate, drop, growth, epochs
    )
    return SharpnessAware(base, method, **options)
