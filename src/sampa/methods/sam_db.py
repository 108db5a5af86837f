"""SAM-db: SAM with its two gradients on different batches (the paper's appendix on stochasticity).

x̃_t = x_t + ρ ∇f(x_t; B') / ‖∇f(x_t; B')‖,   x_{t+1} = x_t − η_t ∇f(x̃_t; B_t),   B' ≠ B_t

The paper does not say which second batch it drew. Here the update is on B_t and the perturbation on
B' = B_{t+1}, so that an epoch still makes one update per batch; `perturb_on="previous"` takes
B' = B_{t−1}, as tml-epfl/understanding-sam does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from sampa.messages import refuses_other_forms, require_choice
from sampa.method import (
    HELD,
    INCOMING,
    PERTURBED,
    Context,
    MethodDefaults,
    Mode,
    Probe,
    Rho,
    Rounds,
    Update,
)
from sampa.optimizer import Bases, SharpnessAware
from sampa.pieces.geometry import Sphere


@dataclass(frozen=True)
class SAMdbState:
    """`started`: a batch is held, so that two gradients can differ in theirs."""

    started: bool = False


@dataclass(frozen=True, kw_only=True)
class SAMdbMethod(MethodDefaults):
    """SAM with its two gradients on different batches."""

    perturb_on: Literal["next", "previous"]

    holds_batch = True

    def __post_init__(self) -> None:
        require_choice("perturb_on", self.perturb_on, ("next", "previous"))

    def initial_state(self) -> SAMdbState:
        return SAMdbState()

    def after_skip(self, state: SAMdbState) -> SAMdbState:
        # The batch that is held now may be the bad one: start again with the next.
        return SAMdbState()

    def rounds(self, context: Context, state: SAMdbState) -> Rounds:
        if not state.started:
            yield (Probe(),)  # its loss is the call's result; B_0 counts in BatchNorm's statistics
            return Update(None, SAMdbState(started=True))
        on_next = self.perturb_on == "next"
        first, second = (INCOMING, HELD) if on_next else (HELD, INCOMING)
        # The incoming batch is the one whose statistics have not been counted yet.
        (g,) = yield (Probe(batch=first, mode=Mode(statistics=on_next)),)
        move = Sphere()(context, g)  # x̃ = x + ρ g / ‖g‖   (eq. 2)
        (g_tilde,) = yield (Probe(move, second, PERTURBED, mode=Mode(statistics=not on_next)),)
        return Update(g_tilde, state)


@refuses_other_forms
def SAMdb(
    base: Bases,
    rho: Rho = 0.05,
    *,
    perturb_on: Literal["next", "previous"] = "next",
    **options: Any,
) -> SharpnessAware:
    """SAM with its two gradients on different batches; worse than SAM, as the paper shows.

    Defaults: rho as SAM; the order of batches is our choice.
    """
    return SharpnessAware(base, SAMdbMethod(rho, perturb_on=perturb_on), **options)
