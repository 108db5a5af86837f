"""The base optimizer as a method: x_{t+1} = ModelUpdate(x_t, ∇f(x_t; B_t)), one probe a step."""

from __future__ import annotations

from dataclasses import dataclass

from sampa.method import Context, MethodDefaults, Probe, Rounds, Update


@dataclass(frozen=True)
class BaseMethod(MethodDefaults):
    """The base optimizer alone."""

    def rounds(self, context: Context, state: None) -> Rounds:
        (g,) = yield (Probe(),)
        return Update(g)
