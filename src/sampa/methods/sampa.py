"""SAMPa-λ: SAM with its two gradients at the same time (Xie, Pethick, Cevher, NeurIPS 2024).

Algorithms 1 and 2 of the paper:

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
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any, Literal

from sampa.loss import Objective
from sampa.messages import refuses_other_forms, require, require_choice, require_number
from sampa.method import (
    CLEAN,
    HELD,
    PERTURBED,
    Context,
    MethodDefaults,
    Mode,
    Move,
    Probe,
    Rho,
    Round,
    Rounds,
    Samples,
    Update,
)
from sampa.optimizer import Bases, SharpnessAware
from sampa.pieces.directions import Direction, Fresh
from sampa.pieces.geometry import Geometry, Sphere
from sampa.pieces.micro_batches import MicroBatches, cut
from sampa.vectors.vector import Vector, mix, weighted_sum


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


@dataclass(frozen=True, kw_only=True)
class SAMPaMethod(MethodDefaults):
    """SAMPa-λ, alone or joined with another variant by its pieces."""

    lam: float
    direction: Direction
    geometry: Geometry
    ascent_loss: Objective | None
    shared_gradient: bool
    micro_batches: MicroBatches | None
    bootstrap: Literal["paper", "script"]
    bn_pass: Literal["lookahead", "perturbed"]

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
        return 3 if self._climbs_another_loss else 2

    @property
    def needs_loss_fn(self) -> bool:
        return self.ascent_loss is not None or self.micro_batches is not None

    @property
    def _climbs_another_loss(self) -> bool:
        return self.ascent_loss is not None and not self.shared_gradient

    @property
    def kept_vectors(self) -> list[str]:
        """The vectors of the state that these choices need."""
        return ["g"] if isinstance(self.direction, Fresh) else ["g", "direction"]

    def initial_state(self) -> SAMPaState:
        return SAMPaState()

    def rounds(self, context: Context, state: SAMPaState) -> Rounds:
        cuts = self.micro_batches
        shares = (1.0,) if cuts is None else cuts.shares(context.batch_size())
        if state.g is None:
            gradients = yield self._at_y(None, shares)  # g_0 = ∇f(y_0; B_0), y_0 = x_0
            first = self._held(gradients, shares, None)
            return Update(first.g if self.bootstrap == "script" else None, first)
        climbs = state.climbed or (state.g,)
        d, memory = self.direction(climbs[0], state.direction)
        # x̃_t = x_t + ρ g_t / ‖g_t‖
        at_x = self._at_x_tilde(context, (d, *climbs[1:]), state.shares)
        # y_{t+1} = ModelUpdate_{m_t}(x_t, g_t)
        at_y = self._at_y(context.base.lookahead(state.g), shares)
        # One of each in turn, so that two branches always have one of each.
        probes = tuple(p for p in chain(*zip_longest(at_x, at_y)) if p is not None)
        gradients = yield probes
        answers = list(zip(probes, gradients, strict=True))
        g_tilde = weighted_sum([g for p, g in answers if p.role is PERTURBED], state.shares)
        held = self._held([g for p, g in answers if p.role is CLEAN], shares, memory)
        assert held.g is not None
        # G_t = (1−λ) ∇f(x̃_t; B_t) + λ ∇f(y_{t+1}; B_{t+1})
        return Update(mix(g_tilde, held.g, self.lam, into_a=True), held)

    def after_skip(self, state: SAMPaState) -> SAMPaState:
        # Either batch may be the bad one: drop both and start again with the next.
        return SAMPaState()

    def _at_x_tilde(
        self, context: Context, directions: Sequence[Vector], shares: Sequence[float]
    ) -> Round:
        moves = [self.geometry(context, d) for d in directions]
        parts = zip(moves, _parts(shares), self._modes("perturbed", len(shares)), strict=True)
        return tuple(Probe(move, HELD, PERTURBED, part, mode) for move, part, mode in parts)

    def _at_y(self, move: Move | None, shares: Sequence[float]) -> Round:
        objective = self.ascent_loss if self.shared_gradient else None
        training = tuple(
            Probe(move, samples=part, mode=mode, objective=objective)
            for part, mode in zip(
                _parts(shares), self._modes("lookahead", len(shares)), strict=True
            )
        )
        if not self._climbs_another_loss:
            return training
        unrecorded, uncounted = Samples(share=0.0), Mode(statistics=False)
        climbed = Probe(move, samples=unrecorded, mode=uncounted, objective=self.ascent_loss)
        return (*training, climbed)

    def _modes(self, bn_pass: str, n: int) -> list[Mode]:
        """A batch counts once in BatchNorm's statistics, with its last micro-batch."""
        return [Mode(statistics=self.bn_pass == bn_pass and j == n - 1) for j in range(n)]

    def _held(
        self, gradients: Sequence[Vector], shares: tuple[float, ...], memory: Vector | None
    ) -> SAMPaState:
        """What the next step needs, from the gradients at y."""
        if self._climbs_another_loss:
            g, climbed = gradients
            return SAMPaState(g, (climbed,), direction=memory)
        if len(gradients) == 1:
            return SAMPaState(gradients[0], direction=memory)
        return SAMPaState(weighted_sum(gradients, shares), tuple(gradients), shares)


def _parts(shares: Sequence[float]) -> Sequence[Samples]:
    return cut(shares) if len(shares) > 1 else (Samples(),)


@refuses_other_forms
def SAMPa(
    base: Bases,
    rho: Rho = 0.1,
    lam: float = 0.2,
    *,
    direction: Direction = Fresh(),
    geometry: Geometry = Sphere(),
    ascent_loss: Objective | None = None,
    shared_gradient: bool = False,
    micro_batches: MicroBatches | None = None,
    bootstrap: Literal["paper", "script"] = "paper",
    bn_pass: Literal["lookahead", "perturbed"] = "lookahead",
    **options: Any,
) -> SharpnessAware:
    """SAM parallelized: the two gradients of a step run at the same time on two devices.

    Defaults: SAMPa paper, CIFAR-10: twice SAM's rho at lambda 0.2.

    Args:
        base: Any torch optimizer.
        rho: Perturbation radius. The paper takes twice SAM's for λ = 0.2, and SAM's for λ = 0.
        lam: λ in [0, 1], the share of the gradient at y. 0 is the case with a convergence proof.
        direction: What to climb; `sampa.Average(theta)` joins SAMPa with VaSSO.
        geometry: How far; `sampa.Adaptive()` joins it with ASAM, `sampa.OnNorms()` with SAM-ON.
        ascent_loss: The loss to climb; `sampa.ZeroOneBound()` joins it with BiSAM.
        shared_gradient: With an ascent loss, use its gradient in all roles (one probe less).
        micro_batches: One perturbation each; `sampa.MicroBatches(32)` joins it with mSAM.
        bootstrap: How the first batch is used: as in the paper, or as in the published script.
        bn_pass: The pass whose BatchNorm statistics count; "perturbed" is the published script's.
        **options: See `sampa.Options`.
    """
    method = SAMPaMethod(
        rho,
        lam=lam,
        direction=direction,
        geometry=geometry,
        ascent_loss=ascent_loss,
        shared_gradient=shared_gradient,
        micro_batches=micro_batches,
        bootstrap=bootstrap,
        bn_pass=bn_pass,
    )
    return SharpnessAware(base, method, **options)
