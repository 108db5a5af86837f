"""RandSAM: SAM with a random perturbation (the SAMPa paper's eq. RandSAM, section 2.2).

x̃_t     = x_t + ρ e_t / ‖e_t‖,  e_t ~ N(0, I)
x_{t+1} = ModelUpdate(x_t, ∇f(x̃_t; B_t))

One of the paper's naive attempts: it does not converge. There is no clean pass, so BatchNorm's
statistics come from x̃.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sampa.messages import refuses_other_forms
from sampa.method import PERTURBED, Context, MethodDefaults, Mode, Probe, Rho, Rounds, Update
from sampa.optimizer import Bases, SharpnessAware
from sampa.pieces.geometry import Sphere
from sampa.vectors.vector import Vector


def gaussian_direction(context: Context) -> Vector:
    """e ~ N(0, I) over the trainable weights, fresh each step and the same on all ranks."""
    return context.random.normal(context.x)


@dataclass(frozen=True, kw_only=True)
class RandSAMMethod(MethodDefaults):
    """SAM along a random direction."""

    direction: Callable[[Context], Vector]

    def rounds(self, context: Context, state: None) -> Rounds:
        move = Sphere()(context, self.direction(context))
        (g_tilde,) = yield (Probe(move, role=PERTURBED, mode=Mode(statistics=True)),)
        return Update(g_tilde)


@refuses_other_forms
def RandSAM(
    base: Bases,
    rho: Rho = 0.05,
    *,
    direction: Callable[[Context], Vector] = gaussian_direction,
    **options: Any,
) -> SharpnessAware:
    """SAM with a random perturbation; does not converge even on a quadratic.

    Defaults: rho as SAM.
    """
    return SharpnessAware(base, RandSAMMethod(rho, direction=direction), **options)
