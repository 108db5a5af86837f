"""The base optimizer as a method: x_{t+1} = ModelUpdate(x_t, ∇f(x_t; B_t)), one probe a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sampa.messages import Rho
from sampa.method import Context, Probe, Rounds, Update


@dataclass(frozen=True)
class MethodDefaults:
    """What a method is unless it says otherwise: a radius, nothing held, nothing to remember."""

    rho: Rho = 0.0

    holds_batch = False

    def initial_state(self) -> Any:
        return None

    def after_skip(self, state: Any) -> Any:
        return state


@dataclass(frozen=True)
class BaseMethod(MethodDefaults):
    """The base optimizer alone."""

    def rounds(self, context: Context, state: None) -> Rounds:
        (g,) = yield (Probe(),)
        return Update(g)
