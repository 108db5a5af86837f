"""WSAM: the sharpness term has a weight of its own (Yue et al., KDD 2023).

w       = γ / (1−γ): minimize f(x) + w (f(x̃) − f(x)),   g̃ = ∇f(x + ρ g / ‖g‖; B)
x_{t+1} = ModelUpdate(x, g) − η w (g̃ − g)        decoupled: the term bypasses the base optimizer
x_{t+1} = ModelUpdate(x, (1−w) g + w g̃)          coupled

The authors' code can clip g and g̃ separately; here `max_norm` clips what the base optimizer gets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sampa.messages import refuses_other_forms, require
from sampa.method import PERTURBED, Context, MethodDefaults, Probe, Rho, Rounds, Update
from sampa.optimizer import Bases, SharpnessAware
from sampa.pieces.geometry import Sphere
from sampa.vectors.vector import Weights, add, add_, mix


@dataclass(frozen=True, kw_only=True)
class WSAMMethod(MethodDefaults):
    """WSAM, decoupled or coupled."""

    gamma: float
    decouple: bool

    def __post_init__(self) -> None:
        require("gamma", self.gamma, 0 <= self.gamma < 1, "in [0, 1)")

    def rounds(self, context: Context, state: None) -> Rounds:
        (g,) = yield (Probe(),)
        (g_tilde,) = yield (Probe(Sphere()(context, g), role=PERTURBED),)
        w = self.gamma / (1 - self.gamma)
        if not self.decouple:
            return Update(mix(g, g_tilde, w))  # (1−w) g + w g̃
        sharpness = add(g_tilde, g, alpha=-1.0)
        # The rates of this step: a scheduler may change them before `then` is called.
        rates = [-lr * w for lr in context.groups.lr]

        def then(weights: Weights) -> None:
            add_(weights, sharpness, rates)  # x_{t+1} = x' − η w (g̃ − g)

        return Update(g, then=then)


@refuses_other_forms
def WSAM(
    base: Bases, rho: Rho = 0.05, gamma: float = 0.9, *, decouple: bool = True, **options: Any
) -> SharpnessAware:
    """SAM with the sharpness term weighted by γ / (1−γ), beside the base optimizer's step.

    Defaults: authors' code.
    """
    return SharpnessAware(base, WSAMMethod(rho, gamma=gamma, decouple=decouple), **options)
