"""The paper's two naive attempts at a cheap perturbation (section 2.2); neither converges.

RandSAM:  x̃_t = x_t + ρ e_t / ‖e_t‖,  e_t ~ N(0, I)                       (eq. RandSAM)
OptSAM:   x̃_t = x_t + ρ ∇f(x̃_{t−1}; B_{t−1}) / ‖·‖                       (eq. OptSAM)
both:     x_{t+1} = x_t − η_t ∇f(x̃_t; B_t)

There is no clean pass, so BatchNorm statistics come from x̃. The paper does not say how OptSAM
starts: here without a perturbation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from sampa.geometry import ascent
from sampa.methods.base import MethodDefaults
from sampa.methods.sampa import HeldGradient
from sampa.probes import Context, Move, Probe, Rho, Rounds, Update
from sampa.vectors import Vector


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
    (g_tilde,) = yield (Probe(move, perturbed=True, statistics=True),)
    return Update(g_tilde)


@dataclass(frozen=True)
class RandSAMMethod(MethodDefaults):
    rho: Rho = 0.05
    direction: Callable[[Context], Vector] = gaussian_direction

    def rounds(self, context: Context, state: None) -> Rounds:
        return one_perturbed_gradient(ascent(context, self.direction(context)))


@dataclass(frozen=True)
class OptSAMMethod(MethodDefaults):
    rho: Rho = 0.05

    def initial_state(self) -> HeldGradient:
        return HeldGradient()

    def rounds(self, context: Context, state: HeldGradient) -> Rounds:
        move = None if state.g is None else ascent(context, state.g)
        update = yield from one_perturbed_gradient(move)
        return Update(update.gradient, HeldGradient(update.gradient))
