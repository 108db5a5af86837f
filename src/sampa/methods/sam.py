"""SAM (Foret et al., ICLR 2021; the SAMPa paper's eq. SAM), and the axes along which it varies.

x̃_t     = x_t + ρ ∇f(x_t; B_t) / ‖∇f(x_t; B_t)‖        (eq. 2)
x_{t+1} = x_t − η_t ∇f(x̃_t; B_t)                       (eq. SAM)

Two sequential gradients: a clean one, then one at the perturbed weights. Along the axes:

direction  what to climb            the fresh gradient · its average (VaSSO) · its residual (F-SAM)
geometry   how far, measured how    sphere · adaptive (ASAM) · Fisher · some tensors only (SAM-ON)
ascent     the loss to climb        the training loss · a bound of the 0-1 loss (BiSAM)
when       perturb at this step?    always · every k (LookSAM) · coin (RST) · large gradient (AE)
combine    the gradient handed on   replace · mix (penalty, G-RST) · surrogate gap (GSAM)
between    and at the other steps   the clean gradient · plus the stored flat direction (LookSAM)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from sampa.loss import Objective
from sampa.messages import refuses_other_forms
from sampa.method import (
    ASCENT,
    CLEAN,
    PERTURBED,
    Context,
    MethodDefaults,
    Probe,
    Rho,
    Rounds,
    Update,
)
from sampa.optimizer import Bases, SharpnessAware
from sampa.pieces.combines import Combine, replace_gradient
from sampa.pieces.directions import Direction, Fresh
from sampa.pieces.geometry import Geometry, Sphere
from sampa.pieces.when import Always, Memory, Policy
from sampa.vectors.vector import Vector


class Between(Protocol):
    """The gradient handed on at a step that does not perturb."""

    def remember(self, g: Vector, g_tilde: Vector) -> Vector | None:
        """What a step that perturbs leaves for the others."""
        ...

    def __call__(self, g: Vector, flat: Vector | None) -> Vector: ...


@dataclass(frozen=True)
class SAMState:
    """What the choices remember between steps.

    Attributes:
        direction: The direction's average, if it keeps one.
        flat: LookSAM's g_v, the part of the last g̃ orthogonal to g.
        policy: The policy's numbers, such as AE-SAM's running mean and variance.
    """

    direction: Vector | None = None
    flat: Vector | None = None
    policy: Memory = ()


@dataclass(frozen=True)
class SAMMethod(MethodDefaults):
    """SAM, and what is made of it by other choices along the axes above."""

    direction: Direction = Fresh()
    geometry: Geometry = Sphere()
    ascent_loss: Objective | None = None
    when: Policy = field(default_factory=Always)
    combine: Combine = replace_gradient
    between: Between | None = None
    radius: Callable[[Context], Context] | None = None

    @property
    def needs_loss_fn(self) -> bool:
        return self.ascent_loss is not None

    @property
    def kept_vectors(self) -> list[str]:
        """The vectors of the state that these choices need."""
        averages = [] if isinstance(self.direction, Fresh) else ["direction"]
        return averages if self.between is None else [*averages, "flat"]

    def initial_state(self) -> SAMState:
        return SAMState()

    def rounds(self, context: Context, state: SAMState) -> Rounds:
        context = context if self.radius is None else self.radius(context)
        (g,) = yield (self._clean_probe(context),)
        perturb, policy = self.when(context, g, state.policy)
        state = replace(state, policy=policy)
        if not perturb:
            return Update(g if self.between is None else self.between(g, state.flat), state)
        d, memory = self.direction(g, state.direction)
        move = self.geometry(context, d)  # x̃ = x + ρ d / ‖d‖   (eq. 2)
        (g_tilde,) = yield (Probe(move, role=PERTURBED),)
        flat = None if self.between is None else self.between.remember(g, g_tilde)
        return Update(self.combine(g, g_tilde), replace(state, direction=memory, flat=flat))

    def _clean_probe(self, context: Context) -> Probe:
        """∇f(x_t; B_t), or only what the perturbation needs of it."""
        only_perturbs = self.combine is replace_gradient and isinstance(self.when, Always)
        return Probe(
            role=ASCENT if only_perturbs else CLEAN,
            objective=self.ascent_loss,
            wrt=self.geometry.wrt(context) if only_perturbs else None,
        )


@refuses_other_forms
def SAM(
    base: Bases, rho: Rho = 0.05, *, geometry: Geometry = Sphere(), **options: Any
) -> SharpnessAware:
    """Sharpness-aware minimization: the gradient at x + ρ g / ‖g‖, two in sequence.

    Defaults: SAMPa paper, CIFAR-10.
    """
    return SharpnessAware(base, SAMMethod(rho, geometry=geometry), **options)
