"""Momentum-SAM: perturb against the base optimizer's momentum (Becker et al., 2024).

x̃_t     = x_t − ρ v_t / ‖v_t‖, v the momentum before this step (Adam: the raw first moment)
x_{t+1} = ModelUpdate(x_t, ∇f(x̃_t; B_t))

One gradient a step, no clean pass: BatchNorm's statistics come from x̃.

The authors' code decays the weights at x̃ (`decay_at="perturbed"`) and, with AdamW, after the step
(`decay_at="after"`); here the decay is the base optimizer's own, at x_t.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from sampa.messages import refuses_other_forms, require_choice
from sampa.method import PERTURBED, Context, MethodDefaults, Mode, Move, Probe, Rho, Rounds, Update
from sampa.optimizer import Bases, SharpnessAware
from sampa.pieces.geometry import along, share_of
from sampa.vectors.vector import Vector, Weights, add_, restrict, restrict_to, scale


@dataclass(frozen=True, kw_only=True)
class MomentumSAMMethod(MethodDefaults):
    """SAM against the base optimizer's momentum."""

    decay_at: Literal["clean", "perturbed", "after"]

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
        (g_tilde,) = yield (Probe(move, role=PERTURBED, mode=Mode(statistics=True)),)
        if self.decay_at == "perturbed" and v is not None:
            return decayed_at(context, v, g_tilde)
        if self.decay_at == "after":
            return Update(g_tilde, then=decay_after_step(context, g_tilde))
        return Update(g_tilde)


def decayed_at(context: Context, v: Vector, g_tilde: Vector) -> Update:
    """The update with the base optimizer's decay at x̃ instead of x.

    Where it decays by the gradient, the decay is not clipped, as its own is not; where it decays
    beside the step, so does this.
    """
    groups, decay = context.groups, restrict_to(extra_decay(context, v), g_tilde)
    by_gradient = restrict(decay, [not decoupled for decoupled in groups.decouples_decay])
    if not any(groups.decouples_decay):
        return Update(g_tilde, unclipped=by_gradient)
    beside = restrict(decay, groups.decouples_decay)
    rates = [-lr for lr in groups.lr]

    def then(weights: Weights) -> None:
        add_(weights, beside, rates)  # x_{t+1} = x' − η wd (x̃ − x)

    return Update(g_tilde, then=then, unclipped=by_gradient)


def extra_decay(context: Context, v: Vector) -> Vector:
    """wd (x̃ − x): with it the base optimizer's own decay at x becomes one at x̃."""
    unit = scale(v, share_of(-1.0, v.norm, context))  # − v / ‖v‖
    factors = zip(unit, context.groups.weight_decay, context.groups.rho, strict=True)
    return Vector(None if t is None else t * (wd * rho) for t, wd, rho in factors)


def decay_after_step(context: Context, gradient: Vector) -> Move:
    """Turn x (1 − η wd) − η u, which AdamW gives, into (x − η u) (1 − η wd)."""
    groups = context.groups
    if not all(groups.decouples_decay):
        raise ValueError(
            'decay_at="after" moves a decay that is beside the step, and the base optimizer decays '
            'by the gradient; use AdamW, or decay_at="perturbed" (as the authors do with SGD)'
        )
    x = restrict_to(Vector(p.detach() for p in context.x), gradient).clone()
    rates = [lr * wd for lr, wd in zip(groups.lr, groups.weight_decay, strict=True)]

    def then(weights: Weights) -> None:
        add_(weights, x, rates)
        for p, before, rate in zip(weights, x, rates, strict=True):
            if before is not None:  # AdamW leaves a tensor without a gradient alone
                p.mul_(1 - rate)

    return then


@refuses_other_forms
def MomentumSAM(
    base: Bases,
    rho: Rho = 3.0,
    *,
    decay_at: Literal["clean", "perturbed", "after"] = "clean",
    **options: Any,
) -> SharpnessAware:
    """Perturb against the base optimizer's momentum: one gradient a step.

    Defaults: authors' CIFAR-100 and ImageNet runs.
    """
    return SharpnessAware(base, MomentumSAMMethod(rho, decay_at=decay_at), **options)
