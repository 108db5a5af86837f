"""SSAM: SAM's perturbation times a sparse binary mask (Mi et al., NeurIPS 2022).

x̃ = x + ρ (g / ‖g‖) ⊙ m, with the norm of the whole gradient; sparsity s is the share that stays.

SSAM-F: every few epochs F = Σ over single samples of (∇f)², m = 1 on the largest entries of F.
SSAM-D: a random mask; every few epochs the n live entries of least |g| are dropped and n grown,
        n = int(min(L a, N − L)), a = drop_rate (1 + cos(π epoch / epochs)) / 2, L the live ones.

Departures from the code, as recommended: the first Fisher mask is made before the first step (not
after it), BatchNorm runs in evaluation mode on single samples, and the samples are those of the
batch at hand; the number of live entries never changes. A new dynamic mask serves from the next
update on, as in the code. Epochs are told with `optimizer.set_epoch`.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from sampa.messages import refuses_other_forms, require, require_choice
from sampa.method import (
    PERTURBED,
    Context,
    MethodDefaults,
    Mode,
    Probe,
    Rho,
    Round,
    Rounds,
    Samples,
    Update,
)
from sampa.optimizer import Bases, SharpnessAware
from sampa.pieces.geometry import Masked
from sampa.pieces.micro_batches import rows
from sampa.vectors import masks
from sampa.vectors.vector import Vector, add

Score = Literal["gradient", "weight", "random"]
SCORES = ("gradient", "weight", "random")


@dataclass(frozen=True)
class SparseState:
    """The mask m (None before the first step), and the epoch that it was made in."""

    mask: Vector | None = None
    epoch: int = 0


@dataclass(frozen=True, kw_only=True)
class SparseSAMMethod(MethodDefaults):
    """SSAM with a Fisher or a dynamic mask."""

    sparsity: float
    mask: Literal["fisher", "dynamic"]
    update_freq: int
    num_samples: int
    drop_rate: float
    drop: Score
    growth: Score
    epochs: int | None

    needs_whole_vectors = True

    def __post_init__(self) -> None:
        require("sparsity", self.sparsity, 0 <= self.sparsity <= 1, "in [0, 1]")
        require("drop_rate", self.drop_rate, 0 <= self.drop_rate <= 1, "in [0, 1]")
        require("update_freq", self.update_freq, self.update_freq >= 1, ">= 1")
        require("num_samples", self.num_samples, self.num_samples >= 1, ">= 1")
        require("epochs", self.epochs, self.epochs is None or self.epochs >= 1, ">= 1 or None")
        require_choice("mask", self.mask, ("fisher", "dynamic"))
        require_choice("drop", self.drop, SCORES)
        require_choice("growth", self.growth, SCORES)

    @property
    def needs_loss_fn(self) -> bool:
        return self.mask == "fisher"

    def initial_state(self) -> SparseState:
        return SparseState()

    def rounds(self, context: Context, state: SparseState) -> Rounds:
        is_due = context.epoch != state.epoch and context.epoch % self.update_freq == 0
        mask = state.mask
        if mask is None or (is_due and self.mask == "fisher"):
            mask = yield from self._new_mask(context)
        (g,) = yield (Probe(),)
        (g_tilde,) = yield (Probe(Masked(mask)(context, g), role=PERTURBED),)
        if is_due and self.mask == "dynamic" and state.mask is not None:
            mask = self._swapped(context, mask, g)
        return Update(g_tilde, SparseState(mask, context.epoch))

    def _new_mask(self, context: Context) -> Generator[Round, Sequence[Vector], Vector]:
        n = masks.size(context.x)
        if self.mask == "dynamic":
            scores = context.random.uniform(context.x)
            return masks.top(scores, n - math.ceil(n * self.sparsity), context.x)
        fisher: Vector | None = None
        for i in range(min(self.num_samples, context.batch_size())):
            one = Samples(rows(torch.tensor([i])), share=0.0)
            (g,) = yield (Probe(samples=one, mode=Mode(evaluation=True, statistics=False)),)
            squared = g.map_elements(torch.square)
            fisher = squared if fisher is None else add(fisher, squared)
        assert fisher is not None
        return masks.top(fisher, int(n * (1 - self.sparsity)), context.x)

    def _swapped(self, context: Context, mask: Vector, g: Vector) -> Vector:
        live, n = masks.count(mask), masks.size(context.x)
        phase = 0.0 if self.epochs is None else min(context.epoch / self.epochs, 1.0)
        a = self.drop_rate * (1 + math.cos(math.pi * phase)) / 2
        swaps = int(min(live * a, n - live))
        scores: dict[Any, Vector] = {
            "gradient": g.map_elements(torch.abs),
            "weight": Vector([p.detach().abs() if p.requires_grad else None for p in context.x]),
            "random": context.random.uniform(context.x),
        }
        return masks.swap(mask, scores[self.drop], scores[self.growth], swaps)


@refuses_other_forms
def SparseSAM(
    base: Bases,
    rho: Rho = 0.1,
    sparsity: float = 0.5,
    *,
    mask: Literal["fisher", "dynamic"] = "fisher",
    update_freq: int = 1,
    num_samples: int = 16,
    drop_rate: float = 0.5,
    drop: Score = "gradient",
    growth: Score = "random",
    epochs: int | None = None,
    **options: Any,
) -> SharpnessAware:
    """SSAM: SAM's perturbation on a sparse set of weights, by Fisher information or dynamic."""
    method = SparseSAMMethod(
        rho,
        sparsity=sparsity,
        mask=mask,
        update_freq=update_freq,
        num_samples=num_samples,
        drop_rate=drop_rate,
        drop=drop,
        growth=growth,
        epochs=epochs,
    )
    return SharpnessAware(base, method, **options)
