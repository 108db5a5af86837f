"""The base optimizer as a method: x_{t+1} = ModelUpdate(x_t, ∇f(x_t; B_t)), one probe a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sampa.messages import refuses_other_forms
from sampa.method import Context, MethodDefaults, Probe, Rounds, Update
from sampa.optimizer import Bases, SharpnessAware
from sampa.options import with_base_alone


@dataclass(frozen=True)
class BaseMethod(MethodDefaults):
    """The base optimizer alone."""

    def rounds(self, context: Context, state: None) -> Rounds:
        (g,) = yield (Probe(),)
        return Update(g)


@with_base_alone
@refuses_other_forms
def Base(base: Bases, **options: Any) -> SharpnessAware:
    """The base optimizer alone, in the same interface: the SGD and AdamW rows of tables.

    Defaults: no hyper-parameters of its own.
    """
    return SharpnessAware(base, BaseMethod(), **options)
