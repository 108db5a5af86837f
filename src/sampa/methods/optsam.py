"""OptSAM: SAM that perturbs along the last perturbed gradient (the SAMPa paper's eq. OptSAM).

x̃_t     = x_t + ρ ∇f(x̃_{t−1}; B_{t−1}) / ‖∇f(x̃_{t−1}; B_{t−1})‖
x_{t+1} = ModelUpdate(x_t, ∇f(x̃_t; B_t))

One of the paper's naive attempts (section 2.2): it does not converge. The paper does not say how it
starts; here without a perturbation. There is no clean pass, so BatchNorm's statistics come from x̃.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sampa.messages import refuses_other_forms
from sampa.method import PERTURBED, Context, MethodDefaults, Mode, Probe, Rho, Rounds, Update
from sampa.methods.states import HeldGradient
from sampa.optimizer import Bases, SharpnessAware
from sampa.pieces.geometry import Sphere


@dataclass(frozen=True)
class OptSAMMethod(MethodDefaults):
    """SAM along the last perturbed gradient."""

    def initial_state(self) -> HeldGradient:
        return HeldGradient()

    def rounds(self, context: Context, state: HeldGradient) -> Rounds:
        move = None if state.g is None else Sphere()(context, state.g)
        (g_tilde,) = yield (Probe(move, role=PERTURBED, mode=Mode(statistics=True)),)
        return Update(g_tilde, HeldGradient(g_tilde))


@refuses_other_forms
def OptSAM(base: Bases, rho: Rho = 0.05, **options: Any) -> SharpnessAware:
    """SAM that perturbs along the last perturbed gradient; does not converge, see the paper.

    Defaults: rho as SAM.
    """
    return SharpnessAware(base, OptSAMMethod(rho), **options)
