"""From a direction to the perturbed weights: how far, measured how."""

from __future__ import annotations

import math

from sampa.probes import Context, Move
from sampa.vectors import Vector, Weights, add_


def ascent(context: Context, g: Vector) -> Move | None:
    """The move to x̃ = x + ρ g / ‖g‖   (eq. 2); stays at x where ‖g‖ is 0 or not finite."""
    norm = g.norm
    if norm == 0 or not math.isfinite(norm):
        return None
    factors = [rho / (norm + context.eps) for rho in context.rho]

    def move(weights: Weights) -> None:
        add_(weights, g, factors)  # x̃ = x + ρ g / ‖g‖

    return move
