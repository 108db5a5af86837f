"""Fisher-SAM: a ball in the metric of the diagonal Fisher matrix (Kim et al., ICML 2022).

F⁻¹     = 1 / (1 + η g²), element by element
x̃       = x + γ F⁻¹ g / √(Σ F⁻¹ g²), the maximizer of ⟨g, e⟩ with Σ e²/F⁻¹ ≤ γ²
x_{t+1} = ModelUpdate(x, ∇f(x̃; B))

No code of the authors was found. Of two public re-implementations one is this; the other divides
F⁻¹ g by its own norm (`euclidean=True`).
"""

from __future__ import annotations

from typing import Any

from sampa.messages import refuses_other_forms
from sampa.method import Rho
from sampa.methods.sam import SAMMethod
from sampa.optimizer import Bases, SharpnessAware
from sampa.pieces.geometry import FisherBall


@refuses_other_forms
def FisherSAM(
    base: Bases,
    gamma: Rho = 0.1,
    eta: float = FisherBall.eta,
    *,
    euclidean: bool = FisherBall.euclidean,
    **options: Any,
) -> SharpnessAware:
    """SAM in a ball that the diagonal Fisher matrix measures; γ is the radius.

    `euclidean=True` gives the move the length γ, as another re-implementation does.

    Defaults: not checked against the original.
    """
    return SharpnessAware(base, SAMMethod(gamma, geometry=FisherBall(eta, euclidean)), **options)
