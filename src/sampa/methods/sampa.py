"""SAMPa-λ (Xie, Pethick, Cevher, NeurIPS 2024; Algorithms 1 and 2), and its limit OptGD (λ = 1).

x̃_t     = x_t + ρ g_t / ‖g_t‖                          with g_t = ∇f(y_t; B_t), y_0 = x_0
y_{t+1} = ModelUpdate_{m_t}(x_t, g_t)                   = x_t − η_t g_t for plain SGD
x_{t+1} = ModelUpdate_{m_t}(x_t, (1−λ) ∇f(x̃_t; B_t) + λ ∇f(y_{t+1}; B_{t+1}))

The two gradients do not depend on each other: one round. The first call computes g_0 on B_0 and
changes no weights, so T+1 batches make T updates.

Joined with another variant (the paper's table "Incorporation with variants of SAM"; it gives no
formulas, this is the direct reading): the gradient at y_t takes the place of the clean gradient
wherever that feeds the perturbation. What depends on weights is evaluated at x_t; y_{t+1} and the
mix always use the plain training gradient.

Departures: none from the paper. Its text says that SAMPa-1 is OptSAM; the formulas say OptGD.
The published script differs (it starts with a plain step on B_0, and needs λ > 0):
`bootstrap="script"` reproduces its start, `bn_pass="perturbed"` its BatchNorm statistics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import Literal

from sampa.batches import MicroBatches, shard, shares
from sampa.losses import Objective
from sampa.messages import Rho, require, require_choice, require_number
from sampa.method import (
    HELD,
    PERTURBED,
    Context,
    MethodDefaults,
    Mode,
    Move,
    Probe,
    Rounds,
    Samples,
    Update,
)
from sampa.pieces.directions import Direction, Fresh
from sampa.pieces.geometry import Geometry, Sphere
from sampa.vectors.vector import Vector, mix, weighted_sum


@dataclass(frozen=True)
class HeldGradient:
    """`g`: ∇f(y_t; B_t), raw and full; None before the first batch."""

    g: Vector | None = None


@dataclass(frozen=True)
class OptGDMethod(MethodDefaults):
    """SAMPa with λ = 1: the gradient at y alone."""

    def initial_state(self) -> HeldGradient:
        return HeldGradient()

    def rounds(self, context: Context, state: HeldGradient) -> Rounds:
        if state.g is None:
            (g_0,) = yield (Probe(),)
            return Update(None, HeldGradient(g_0))
        (g_next,) = yield (Probe(context.base.lookahead(state.g)),)  # ∇f(y_{t+1}; B_{t+1})
        return Update(g_next, HeldGradient(g_next))

    def after_skip(self, state: HeldGradient) -> HeldGradient:
        return HeldGradient()


@dataclass(frozen=True)
class SAMPaState:
    """What step t needs of B_t.

    Attributes:
        g: g_t = ∇f(y_t; B_t), raw and full; None before the first batch.
        climbed: The gradients that perturb, if not g itself: one per micro-batch (mSAM), or that of
            the ascent loss (BiSAM).
        shares: The share of B_t's samples behind each of them.
        direction: The direction's average, if it keeps one (VaSSO).
    """

    g: Vector | None = None
    climbed: tuple[Vector, ...] = ()
    shares: tuple[float, ...] = (1.0,)
    direction: Vector | None = None


@dataclass(frozen=True)
class SAMPaMethod(MethodDefaults):
    """SAMPa-λ, alone or joined with another variant by its pieces."""

    rho: Rho = 0.1
    lam: float = 0.2
    direction: Direction = field(default_factory=Fresh)
    geometry: Geometry = field(default_factory=Sphere)
    ascent_loss: Objective | None = None
    shared_gradient: bool = False
    micro_batches: MicroBatches | None = None
    bootstrap: Literal["paper", "script"] = "paper"
    bn_pass: Literal["lookahead", "perturbed"] = "lookahead"

    holds_batch = True

    def __post_init__(self) -> None:
        require_number("lam", self.lam, 0, 1, "in [0, 1]")
        require_choice("bootstrap", self.bootstrap, ("paper", "script"))
        require_choice("bn_pass", self.bn_pass, ("lookahead", "perturbed"))
        alone = isinstance(self.direction, Fresh) and self.ascent_loss is None
        require(
            "micro_batches",
            self.micro_batches,
            self.micro_batches is None or alone,
            "None with another direction or ascent_loss (each micro-batch climbs its own gradient)",
        )

    @property
    def probes_per_round(self) -> int:
        if self.micro_batches is not None:
            return 2 * (self.micro_batches.count or 1)
        return 2 if self.ascent_loss is None or self.shared_gradient else 3

    def initial_state(self) -> SAMPaState:
        return SAMPaState()

    def rounds(self, context: Context, state: SAMPaState) -> Rounds:
        if state.g is None:
            gradients = yield self._at_y(context, move=None)  # g_0 = ∇f(y_0; B_0), y_0 = x_0
            first = self._held(context, gradients, None)
            return Update(first.g if self.bootstrap == "script" else None, first)
        climbs = state.climbed or (state.g,)
        d, memory = self.direction(climbs[0], state.direction)
        # x̃_t = x_t + ρ g_t / ‖g_t‖
        at_x = self._at_x_tilde(context, (d, *climbs[1:]), state.shares)
        # y_{t+1} = ModelUpdate_{m_t}(x_t, g_t)
        at_y = self._at_y(context, context.base.lookahead(state.g))
        gradients = yield alternate(at_x, at_y)
        perturbed, lookahead = separate(gradients, len(at_x), len(at_y))
        g_tilde = weighted_sum(perturbed, state.shares)
        held = self._held(context, lookahead, memory)
        assert held.g is not None
        # G_t = (1−λ) ∇f(x̃_t; B_t) + λ ∇f(y_{t+1}; B_{t+1})
        return Update(mix(g_tilde, held.g, self.lam), held)

    def after_skip(self, state: SAMPaState) -> SAMPaState:
        # Either batch may be the bad one: drop both and start again with the next.
        return SAMPaState()

    def _at_x_tilde(
        self, context: Context, directions: Sequence[Vector], weights: Sequence[float]
    ) -> tuple[Probe, ...]:
        n = len(directions)
        return tuple(
            Probe(
                self.geometry(context, d),
                HELD,
                PERTURBED,
                Samples(None if n == 1 else shard(j, n), share),
                Mode(statistics=self.bn_pass == "perturbed" and j == n - 1),
            )
            for j, (d, share) in enumerate(zip(directions, weights, strict=True))
        )

    def _at_y(self, context: Context, move: Move | None) -> tuple[Probe, ...]:
        n = self._micro_batches(context)
        weights = (1.0,) if n == 1 else shares(context.batch_size(), n)
        counted = self.bn_pass == "lookahead"  # a batch counts once, with its last micro-batch
        objective = self.ascent_loss if self.shared_gradient else None
        training = tuple(
            Probe(
                move,
                samples=Samples(None if n == 1 else shard(j, n), share),
                mode=Mode(statistics=counted and j == n - 1),
                objective=objective,
            )
            for j, share in enumerate(weights)
        )
        if self.ascent_loss is None or self.shared_gradient:
            return training
        unrecorded, uncounted = Samples(share=0.0), Mode(statistics=False)
        climbed = Probe(move, samples=unrecorded, mode=uncounted, objective=self.ascent_loss)
        return (*training, climbed)

    def _held(
        self, context: Context, gradients: Sequence[Vector], memory: Vector | None
    ) -> SAMPaState:
        """What the next step needs, from the gradients at y."""
        if self.ascent_loss is not None and not self.shared_gradient:
            g, climbed = gradients
            return SAMPaState(g, (climbed,), direction=memory)
        if len(gradients) == 1:
            return SAMPaState(gradients[0], direction=memory)
        parts = shares(context.batch_size(), len(gradients))
        return SAMPaState(weighted_sum(gradients, parts), tuple(gradients), parts)

    def _micro_batches(self, context: Context) -> int:
        return 1 if self.micro_batches is None else self.micro_batches.number(context.batch_size())


def alternate(first: Sequence[Probe], second: Sequence[Probe]) -> tuple[Probe, ...]:
    """One of each in turn, so that two branches always have one of each."""
    return tuple(p for p in chain(*zip_longest(first, second)) if p is not None)


def separate(
    gradients: Sequence[Vector], first: int, second: int
) -> tuple[list[Vector], list[Vector]]:
    """Undo `alternate` for the answers."""
    places = [tag for tag in chain(*zip_longest([0] * first, [1] * second)) if tag is not None]
    pairs = list(zip(places, gradients, strict=True))
    return [g for tag, g in pairs if tag == 0], [g for tag, g in pairs if tag == 1]
