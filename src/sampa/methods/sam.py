"""SAM (Foret et al., ICLR 2021; the paper's eq. SAM) and the methods that are choices within it.

x̃_t     = x_t + ρ ∇f(x_t; B_t) / ‖∇f(x_t; B_t)‖        (eq. 2)
x_{t+1} = x_t − η_t ∇f(x̃_t; B_t)                       (eq. SAM)

Two sequential gradients: a clean one, then one at the perturbed weights. Along the axes:

direction  what to climb            the fresh gradient · its average (VaSSO) · its residual (F-SAM)
geometry   how far, measured how    sphere · adaptive (ASAM) · Fisher · some tensors only (SAM-ON)
ascent     the loss to climb        the training loss · a bound of the 0-1 loss (BiSAM)
when       perturb at this step?    always · every k (LookSAM) · coin (RST) · large gradient (AE)
combine    the gradient handed on   replace · mix (penalty, G-RST, WSAM) · surrogate gap (GSAM)
between    and at the other steps   the clean gradient · plus the stored flat direction (LookSAM)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from sampa.losses import Objective
from sampa.messages import Rho, require
from sampa.method import ASCENT, CLEAN, PERTURBED, Context, MethodDefaults, Probe, Rounds, Update
from sampa.pieces.combines import Combine
from sampa.pieces.combines import replace as replace_gradient
from sampa.pieces.directions import Direction, Fresh
from sampa.pieces.geometry import Geometry, Sphere
from sampa.pieces.when import Always, Numbers, Policy
from sampa.vectors.vector import (
    Vector,
    Weights,
    add,
    add_,
    each_tensor,
    orthogonal_part,
    restrict_to,
)


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
    policy: Numbers = ()


@dataclass(frozen=True)
class ReuseFlatDirection:
    """G = g + α (‖g‖ / ‖g_v‖) g_v between two SAM steps: LookSAM (Liu et al., CVPR 2022).

    The inner product and norms are global, as in the paper; `per_tensor` takes each tensor on its
    own, as some published code does.
    """

    alpha: float = 0.7
    per_tensor: bool = False

    def __post_init__(self) -> None:
        require("alpha", self.alpha, math.isfinite(self.alpha), "finite")

    def remember(self, g: Vector, g_tilde: Vector) -> Vector | None:
        if self.per_tensor:
            return each_tensor(orthogonal_part, g_tilde, g)
        return orthogonal_part(g_tilde, g)  # g_v = g̃ − (⟨g̃, g⟩ / ‖g‖²) g

    def __call__(self, g: Vector, flat: Vector | None) -> Vector:
        if flat is None:
            return g
        flat = restrict_to(flat, g)
        return each_tensor(self._reused, g, flat) if self.per_tensor else self._reused(g, flat)

    def _reused(self, g: Vector, flat: Vector) -> Vector:
        return g if flat.norm == 0 else add(g, flat, alpha=self.alpha * g.norm / flat.norm)


@dataclass(frozen=True)
class RadiusFromRate:
    """ρ_t = ρ_min + (ρ − ρ_min) (η_t − η_min) / (η_max − η_min): GSAM's radius."""

    rho_min: float
    lr_max: float
    lr_min: float = 0.0

    def __post_init__(self) -> None:
        require("rho_min", self.rho_min, self.rho_min >= 0, ">= 0")
        require("lr_max", self.lr_max, self.lr_max >= self.lr_min, f">= lr_min = {self.lr_min}")

    def __call__(self, context: Context) -> Context:
        span = self.lr_max - self.lr_min
        shares = [1.0 if span == 0 else (lr - self.lr_min) / span for lr in context.groups.lr]
        rhos = [
            self.rho_min + (rho - self.rho_min) * s
            for rho, s in zip(context.groups.rho, shares, strict=True)
        ]
        return replace(context, groups=replace(context.groups, rho=rhos))


@dataclass(frozen=True)
class SAMMethod(MethodDefaults):
    """SAM, and what is made of it by other choices along the axes above."""

    rho: Rho = 0.05
    direction: Direction = field(default_factory=Fresh)
    geometry: Geometry = field(default_factory=Sphere)
    ascent_loss: Objective | None = None
    when: Policy = field(default_factory=Always)
    combine: Combine = replace_gradient
    between: ReuseFlatDirection | None = None
    radius: RadiusFromRate | None = None

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


@dataclass(frozen=True)
class WSAMMethod(MethodDefaults):
    """Decoupled WSAM (Yue et al., KDD 2023): the sharpness term bypasses the base optimizer.

    w = γ / (1−γ);  x' = ModelUpdate(x, g);  x_{t+1} = x' − η w (g̃ − g)
    """

    rho: Rho = 0.05
    gamma: float = 0.9

    def __post_init__(self) -> None:
        require("gamma", self.gamma, 0 <= self.gamma < 1, "in [0, 1)")

    def rounds(self, context: Context, state: Any) -> Rounds:
        (g,) = yield (Probe(),)
        (g_tilde,) = yield (Probe(Sphere()(context, g), role=PERTURBED),)
        sharpness = add(g_tilde, g, alpha=-1.0)
        w = self.gamma / (1 - self.gamma)
        # The rates of this step: a scheduler may change them before `then` is called.
        rates = [-lr * w for lr in context.groups.lr]

        def then(weights: Weights) -> None:
            add_(weights, sharpness, rates)  # x_{t+1} = x' − η w (g̃ − g)

        return Update(g, then=then)
