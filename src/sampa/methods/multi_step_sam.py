"""Multi-step ascent: K climbs before the descent gradient (Andriushchenko, Flammarion, 2022).

d = 0;  K times:  d ← d + a ∇f(x+d; B) / ‖∇f(x+d; B)‖,  shortened to ρ if it is longer
x_{t+1} = ModelUpdate(x, ∇f(x+d; B))

a = ρ/K by default, so that the projection never acts; `project=True` takes a = ρ and projects, as
tml-epfl/understanding-sam does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sampa.messages import refuses_other_forms, require
from sampa.method import CLEAN, PERTURBED, Context, MethodDefaults, Move, Probe, Rho, Rounds, Update
from sampa.optimizer import Bases, SharpnessAware
from sampa.pieces.geometry import share_of
from sampa.vectors.vector import Vector, Weights, add, add_, scale


@dataclass(frozen=True, kw_only=True)
class MultiStepSAMMethod(MethodDefaults):
    """SAM with K climbs."""

    steps: int
    project: bool

    def __post_init__(self) -> None:
        require("steps", self.steps, self.steps >= 1, ">= 1")

    def rounds(self, context: Context, state: None) -> Rounds:
        a = 1.0 if self.project else 1 / self.steps  # in units of ρ, which groups may differ in
        d: Vector | None = None
        for k in range(self.steps):
            (g,) = yield (Probe(offset(context, d), role=PERTURBED if k > 0 else CLEAN),)
            climb = scale(g, share_of(a, g.norm, context))  # a g / ‖g‖
            d = climb if d is None else add(d, climb)
            if self.project:
                d = scale(d, 1 / d.norm.clamp(min=1))
        (g_tilde,) = yield (Probe(offset(context, d), role=PERTURBED),)
        return Update(g_tilde)


def offset(context: Context, d: Vector | None) -> Move | None:
    """The move x += ρ d."""
    if d is None:
        return None

    def move(weights: Weights) -> None:
        add_(weights, d, context.groups.rho)

    return move


@refuses_other_forms
def MultiStepSAM(
    base: Bases, rho: Rho = 0.05, steps: int = 3, *, project: bool = False, **options: Any
) -> SharpnessAware:
    """SAM that climbs in K steps of ρ/K, or of ρ with projection onto the ball.

    Defaults: rho as SAM; steps of rho/K are our choice.
    """
    return SharpnessAware(base, MultiStepSAMMethod(rho, steps=steps, project=project), **options)
