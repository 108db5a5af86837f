"""OptGD: optimistic gradient descent, which SAMPa is at λ = 1 (the SAMPa paper's eq. OptGD).

y_{t+1} = ModelUpdate_{m_t}(x_t, g_t)                   with g_t = ∇f(y_t; B_t), y_0 = x_0
x_{t+1} = ModelUpdate_{m_t}(x_t, g_{t+1})

The first call computes g_0 and changes no weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sampa.messages import refuses_other_forms
from sampa.method import Context, MethodDefaults, Probe, Rounds, Update
from sampa.methods.states import HeldGradient
from sampa.optimizer import Bases, SharpnessAware
from sampa.options import with_base_alone


@dataclass(frozen=True)
class OptGDMethod(MethodDefaults):
    """SAMPa with λ = 1: the gradient at y alone."""

    def initial_state(self) -> HeldGradient:
        return HeldGradient()

    def rounds(self, context: Context, state: HeldGradient) -> Rounds:
        if state.g is None:
            (g_0,) = yield (Probe(),)
            return Update(None, HeldGradient(g_0))
        (g_next,) = yield (Probe(context.base.lookahead(state.g)),)  # ∇f(y_{t+1}; B_{t+1})
        return Update(g_next, HeldGradient(g_next))

    def after_skip(self, state: HeldGradient) -> HeldGradient:
        return HeldGradient()


@with_base_alone
@refuses_other_forms
def OptGD(base: Bases, **options: Any) -> SharpnessAware:
    """Optimistic gradient descent: SAMPa with λ = 1, one gradient a step.

    Defaults: no hyper-parameters of its own.
    """
    return SharpnessAware(base, OptGDMethod(), **options)
