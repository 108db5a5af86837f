"""States that several methods share."""

from __future__ import annotations

from dataclasses import dataclass

from sampa.vectors.vector import Vector


@dataclass(frozen=True)
class HeldGradient:
    """`g`: the gradient that the next step needs, raw and full; None before the first batch."""

    g: Vector | None = None
