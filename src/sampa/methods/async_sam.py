"""AsyncSAM: the perturbation from a one-step-old gradient (Jo, Lim, Lee, 2025).

a_s     = ∇f(x_s; B'_s), B' a part of the batch, computed beside the descent gradient
x_{t+1} = ModelUpdate(x_t, ∇f(x_t + ρ a_{t−τ} / ‖a_{t−τ}‖; B_t)),  τ = 1, no perturbation at t = 0

One round of two probes; the exchange waits for the slower one, so the order is always the same.
`ascent_batch="next"` evaluates a on a part of the batch that it will perturb (SAMPa-0 with
y_{t+1} = x_t). τ = 0 on the whole batch is SAM. Not checked against the original.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from sampa.messages import refuses_other_forms, require, require_choice
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
    Samples,
    Update,
)
from sampa.methods.states import HeldGradient
from sampa.optimizer import Bases, SharpnessAware
from sampa.pieces.geometry import Sphere
from sampa.pieces.micro_batches import first_samples
from sampa.vectors.vector import Vector


@dataclass(frozen=True, kw_only=True)
class AsyncSAMMethod(MethodDefaults):
    """AsyncSAM, with a part of the batch for the ascent."""

    tau: int
    ascent_share: float
    ascent_batch: Literal["previous", "next"]

    def __post_init__(self) -> None:
        require("tau", self.tau, self.tau in (0, 1), "0 or 1")
        require("ascent_share", self.ascent_share, 0 < self.ascent_share <= 1, "in (0, 1]")
        require_choice("ascent_batch", self.ascent_batch, ("previous", "next"))
        ahead = self.ascent_batch == "next"
        require("tau", self.tau, self.tau == 1 or not ahead, "1 with ascent_batch='next'")

    @property
    def holds_batch(self) -> bool:
        return self.ascent_batch == "next"

    @property
    def needs_loss_fn(self) -> bool:
        return self.ascent_share < 1.0

    @property
    def probes_per_round(self) -> int:
        return 1 + self.tau

    def initial_state(self) -> HeldGradient:
        return HeldGradient()

    def rounds(self, context: Context, state: HeldGradient) -> Rounds:
        # A part of the batch is not the whole batch: then the descent pass counts its statistics.
        whole = self.ascent_share == 1.0
        part = None if whole else first_samples(self.ascent_share)
        ascent = Probe(samples=Samples(part, self.ascent_share), mode=Mode(statistics=whole))
        if self.tau == 0:
            (a,) = yield (ascent,)
            (g_tilde,) = yield (self._descent(context, a, statistics=not whole),)
            return Update(g_tilde)
        if self.holds_batch and state.g is None:
            (a_next,) = yield (ascent,)
            return Update(None, HeldGradient(a_next))
        g_tilde, a_next = yield (self._descent(context, state.g, statistics=not whole), ascent)
        return Update(g_tilde, HeldGradient(a_next))

    def _descent(self, context: Context, a: Vector | None, *, statistics: bool) -> Probe:
        return Probe(
            None if a is None else Sphere()(context, a),  # x̃_t = x_t + ρ a_{t−1} / ‖a_{t−1}‖
            HELD if self.holds_batch else INCOMING,
            PERTURBED,
            mode=Mode(statistics=statistics),
        )

    def after_skip(self, state: HeldGradient) -> HeldGradient:
        return HeldGradient()


@refuses_other_forms
def AsyncSAM(
    base: Bases,
    rho: Rho = 0.05,
    tau: int = 1,
    *,
    ascent_share: float = 1.0,
    ascent_batch: Literal["previous", "next"] = "previous",
    **options: Any,
) -> SharpnessAware:
    """SAM with a one-step-old ascent gradient, computed beside the descent gradient.

    Defaults: rho as SAM; not checked against the original.
    """
    method = AsyncSAMMethod(rho, tau=tau, ascent_share=ascent_share, ascent_batch=ascent_batch)
    return SharpnessAware(base, method, **options)
