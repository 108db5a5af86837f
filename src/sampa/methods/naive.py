"""One gradient a step, at weights perturbed without a gradient of their own.

RandSAM:       x̃_t = x_t + ρ e_t / ‖e_t‖,  e_t ~ N(0, I)                  (eq. RandSAM)
OptSAM:        x̃_t = x_t + ρ ∇f(x̃_{t−1}; B_{t−1}) / ‖·‖                  (eq. OptSAM)
Momentum-SAM:  x̃_t = x_t − ρ v_t / ‖v_t‖, v the base optimizer's momentum before this step
all:           x_{t+1} = ModelUpdate(x_t, ∇f(x̃_t; B_t))

The first two are the paper's naive attempts (section 2.2): neither converges. Momentum-SAM is by
Becker et al., 2024. There is no clean pass, so BatchNorm statistics come from x̃.

OptSAM: the paper does not say how it starts; here without a perturbation.
Momentum-SAM: the authors' code decays the weights at x̃ (`decay_at="perturbed"`) and, with
AdamW, after the step (`decay_at="after"`); here the decay is the base optimizer's own, at x_t.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import torch

from sampa.messages import Rho, require_choice
from sampa.method import PERTURBED, Context, MethodDefaults, Mode, Move, Probe, Rounds, Update
from sampa.methods.sampa import HeldGradient
from sampa.pieces.geometry import Geometry, Sphere, along
from sampa.vectors.vector import Vector, Weights, add, restrict_to


def gaussian_direction(context: Context) -> Vector:
    """e ~ N(0, I) over the trainable weights, fresh each step and the same on all ranks."""
    generator = context.generator()
    return Vector(
        [
            torch.randn(p.shape, generator=generator, dtype=p.dtype).to(p.device)
            if p.requires_grad
            else None
            for p in context.x
        ]
    )


def one_perturbed_gradient(move: Move | None) -> Rounds:
    """The round that all methods of this file are: one gradient, at x̃."""
    (g_tilde,) = yield (Probe(move, role=PERTURBED, mode=Mode(statistics=True)),)
    return Update(g_tilde)


@dataclass(frozen=True)
class RandSAMMethod(MethodDefaults):
    """SAM along a random direction."""

    rho: Rho = 0.05
    direction: Callable[[Context], Vector] = gaussian_direction
    geometry: Geometry = field(default_factory=Sphere)

    def rounds(self, context: Context, state: None) -> Rounds:
        return one_perturbed_gradient(self.geometry(context, self.direction(context)))


@dataclass(frozen=True)
class OptSAMMethod(MethodDefaults):
    """SAM along the last perturbed gradient."""

    rho: Rho = 0.05
    geometry: Geometry = field(default_factory=Sphere)

    def initial_state(self) -> HeldGradient:
        return HeldGradient()

    def rounds(self, context: Context, state: HeldGradient) -> Rounds:
        move = None if state.g is None else self.geometry(context, state.g)
        update = yield from one_perturbed_gradient(move)
        return Update(update.gradient, HeldGradient(update.gradient))


@dataclass(frozen=True)
class MomentumSAMMethod(MethodDefaults):
    """SAM against the base optimizer's momentum."""

    rho: Rho = 3.0
    decay_at: Literal["clean", "perturbed", "after"] = "clean"

    def __post_init__(self) -> None:
        require_choice("decay_at", self.decay_at, ("clean", "perturbed", "after"))

    def rounds(self, context: Context, state: None) -> Rounds:
        v = context.base.momentum()
        if v is None and context.t > 0:
            raise ValueError(
                "Momentum-SAM needs a base optimizer with momentum, and its state has neither "
                "'momentum_buffer' nor 'exp_avg'; use SGD with momentum > 0, or Adam"
            )
        v = None if v is None else v.clone()  # the base optimizer changes its buffer in place
        move = None if v is None else along(context, v, v.norm, factor=-1.0)
        update = yield from one_perturbed_gradient(move)
        assert update.gradient is not None
        if self.decay_at == "perturbed" and v is not None and v.norm > 0:
            extra = restrict_to(self._extra_decay(context, v), update.gradient)
            return Update(add(update.gradient, extra))
        if self.decay_at == "after":
            return Update(update.gradient, then=decay_after_step(context, update.gradient))
        return update

    def _extra_decay(self, context: Context, v: Vector) -> Vector:
        """wd (x̃ − x): with it the base optimizer's own decay at x becomes one at x̃."""
        factors = zip(v, context.groups.weight_decay, context.groups.rho, strict=True)
        length = v.norm + context.groups.eps
        return Vector([None if t is None else t * (-wd * rho / length) for t, wd, rho in factors])


def decay_after_step(context: Context, gradient: Vector) -> Move:
    """Turn x (1 − η wd) − η u, which AdamW gives, into (x − η u) (1 − η wd)."""
    x = restrict_to(Vector([p.detach() for p in context.x]), gradient).clone()
    groups = context.groups
    rates = [lr * wd for lr, wd in zip(groups.lr, groups.weight_decay, strict=True)]

    def then(weights: Weights) -> None:
        for p, before, rate in zip(weights, x, rates, strict=True):
            if before is not None:  # AdamW leaves a tensor without a gradient alone
                p.add_(before, alpha=rate).mul_(1 - rate)

    return then
