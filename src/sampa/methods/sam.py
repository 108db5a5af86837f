"""SAM: sharpness-aware minimization (Foret et al., ICLR 2021; the paper's eq. SAM), and SAM-db.

x̃_t     = x_t + ρ ∇f(x_t; B_t) / ‖∇f(x_t; B_t)‖        (eq. 2)
x_{t+1} = x_t − η_t ∇f(x̃_t; B_t)                       (eq. SAM)

SAM-db (the paper's appendix on stochasticity) takes the two gradients on different batches. The
paper does not say which: here the update is on B_t and the perturbation on B_{t+1}, so that an
epoch still makes one update per batch; `perturb_on="previous"` perturbs on B_{t−1}, as
tml-epfl/understanding-sam does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sampa.checks import require_choice
from sampa.geometry import ascent
from sampa.methods.base import MethodDefaults
from sampa.probes import HELD, INCOMING, Batch, Context, Probe, Rho, Rounds, Update


@dataclass(frozen=True)
class SAMMethod(MethodDefaults):
    rho: Rho = 0.05

    def rounds(self, context: Context, state: None) -> Rounds:
        return two_gradients(context, INCOMING, INCOMING)


@dataclass(frozen=True)
class SAMdbState:
    """`started`: a batch is held, so that there are two to work on."""

    started: bool = False


@dataclass(frozen=True)
class SAMdbMethod(MethodDefaults):
    rho: Rho = 0.05
    perturb_on: Literal["next", "previous"] = "next"

    holds_batch = True

    def __post_init__(self) -> None:
        require_choice("perturb_on", self.perturb_on, ("next", "previous"))

    def initial_state(self) -> SAMdbState:
        return SAMdbState()

    def rounds(self, context: Context, state: SAMdbState) -> Rounds:
        if not state.started:
            yield (Probe(),)  # its loss is the call's result; B_0 counts in BatchNorm's statistics
            return Update(None, SAMdbState(started=True))
        if self.perturb_on == "next":
            update = yield from two_gradients(context, INCOMING, HELD)
        else:
            update = yield from two_gradients(context, HELD, INCOMING)
        return Update(update.gradient, state)


def two_gradients(context: Context, perturb_on: Batch, update_on: Batch) -> Rounds:
    """The two sequential gradients of SAM."""
    # Whatever the roles, the incoming batch is the one whose statistics have not been counted yet.
    (g,) = yield (Probe(batch=perturb_on, statistics=perturb_on is INCOMING),)
    (g_tilde,) = yield (
        Probe(
            ascent(context, g),  # x̃ = x + ρ g / ‖g‖   (eq. 2)
            batch=update_on,
            perturbed=True,
            statistics=perturb_on is not INCOMING,
        ),
    )
    return Update(g_tilde)
