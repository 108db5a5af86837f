"""SAMPa-λ (Xie, Pethick, Cevher, NeurIPS 2024; Algorithms 1 and 2), and its limit OptGD (λ = 1).

x̃_t     = x_t + ρ g_t / ‖g_t‖                          with g_t = ∇f(y_t; B_t), y_0 = x_0
y_{t+1} = ModelUpdate_{m_t}(x_t, g_t)                   = x_t − η_t g_t for plain SGD
x_{t+1} = ModelUpdate_{m_t}(x_t, (1−λ) ∇f(x̃_t; B_t) + λ ∇f(y_{t+1}; B_{t+1}))

The two gradients do not depend on each other: one round. The first call computes g_0 on B_0 and
changes no weights, so T+1 batches make T updates.

Departures: none from the paper. Its text says that SAMPa-1 is OptSAM; the formulas say OptGD.
The published script differs (it starts with a plain step on B_0, and needs λ > 0):
`bootstrap="script"` reproduces its start, `bn_pass="perturbed"` its BatchNorm statistics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sampa.checks import require, require_choice
from sampa.geometry import ascent
from sampa.methods.base import MethodDefaults
from sampa.probes import HELD, INCOMING, Context, Probe, Rho, Rounds, Update
from sampa.vectors import Vector, mix


@dataclass(frozen=True)
class HeldGradient:
    """`g`: ∇f(y_t; B_t), raw and full; None before the first batch."""

    g: Vector | None = None


@dataclass(frozen=True)
class OptGDMethod(MethodDefaults):
    def initial_state(self) -> HeldGradient:
        return HeldGradient()

    def rounds(self, context: Context, state: HeldGradient) -> Rounds:
        if state.g is None:
            (g_0,) = yield (Probe(),)
            return Update(None, HeldGradient(g_0))
        (g_next,) = yield (Probe(context.lookahead(state.g)),)  # ∇f(y_{t+1}; B_{t+1})
        return Update(g_next, HeldGradient(g_next))

    def after_skip(self, state: HeldGradient) -> HeldGradient:
        return HeldGradient()


@dataclass(frozen=True)
class SAMPaMethod(MethodDefaults):
    rho: Rho = 0.1
    lam: float = 0.2
    bootstrap: Literal["paper", "script"] = "paper"
    bn_pass: Literal["lookahead", "perturbed"] = "lookahead"

    holds_batch = True

    def __post_init__(self) -> None:
        require("lam", self.lam, 0 <= self.lam <= 1, "in [0, 1]")
        require_choice("bootstrap", self.bootstrap, ("paper", "script"))
        require_choice("bn_pass", self.bn_pass, ("lookahead", "perturbed"))

    def initial_state(self) -> HeldGradient:
        return HeldGradient()

    def rounds(self, context: Context, state: HeldGradient) -> Rounds:
        counted_at_y = self.bn_pass == "lookahead"
        if state.g is None:
            (g_0,) = yield (Probe(statistics=counted_at_y),)  # g_0 = ∇f(y_0; B_0), y_0 = x_0
            return Update(g_0 if self.bootstrap == "script" else None, HeldGradient(g_0))
        g = state.g
        g_tilde, g_next = yield (
            # x̃_t = x_t + ρ g_t / ‖g_t‖
            Probe(ascent(context, g), HELD, perturbed=True, statistics=not counted_at_y),
            # y_{t+1} = ModelUpdate_{m_t}(x_t, g_t)
            Probe(context.lookahead(g), INCOMING, statistics=counted_at_y),
        )
        # G_t = (1−λ) ∇f(x̃_t; B_t) + λ ∇f(y_{t+1}; B_{t+1})
        return Update(mix(g_tilde, g_next, self.lam), HeldGradient(g_next))

    def after_skip(self, state: HeldGradient) -> HeldGradient:
        # Either batch may be the bad one: drop both and start again with the next.
        return HeldGradient()
