"""RST: a coin decides between SAM and base steps (Zhao et al., 2022); G-RST mixes.

u_t ~ Bernoulli(p(t))
u_t = 1:  G = g̃ = ∇f(x + ρ g / ‖g‖; B)   (RST),   (1−γ) g + γ g̃   (G-RST)
u_t = 0:  G = g = ∇f(x; B)
x_{t+1} = ModelUpdate(x, G)

In G-RST the authors' code mixes in g / ‖g‖ instead of g (`normalized=True`). Their warm-up epochs
take base steps only (`warmup`, in updates).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from sampa.messages import refuses_other_forms, require
from sampa.method import Rho
from sampa.methods.sam import SAMMethod
from sampa.optimizer import Bases, SharpnessAware
from sampa.pieces.combines import Mix, replace_gradient
from sampa.pieces.when import Coin, Probability


@refuses_other_forms
def RST(
    base: Bases,
    rho: Rho = 0.05,
    p: float = 0.6,
    *,
    schedule: str = "constant",
    total_steps: int | None = None,
    gamma: float | None = None,
    coins: Sequence[bool] | None = None,
    normalized: bool = False,
    warmup: int = 0,
    **options: Any,
) -> SharpnessAware:
    """SAM or the base optimizer by a coin; with `gamma`, G-RST's mix in place of SAM's gradient.

    `normalized=True` mixes in g / ‖g‖, as the authors' code does by default.

    Defaults: authors' example: p 0.6.
    """
    require("gamma", gamma, gamma is None or math.isfinite(gamma), "finite or None")
    combine = replace_gradient if gamma is None else Mix(gamma, normalized)
    coin = Coin(Probability(p, schedule, total_steps), coins, warmup)
    return SharpnessAware(base, SAMMethod(rho, when=coin, combine=combine), **options)
