"""ESAM: perturb a random part of the weights, update on the hardest samples (Du et al., ICLR 2022).

SWP:  S a random choice of tensors, each with probability β (all of them at t = 0)
      x̃ = x + (ρ/β) g_S / ‖g_S‖
SDS:  B⁺ = the share γ of the samples whose loss grows most from x to x̃
      x_{t+1} = ModelUpdate(x, ∇f(x̃; B⁺)), over all tensors

Paper and code differ: the paper masks single weights, x̃ = x + (ρ/β) m ⊙ g / ‖g‖ with the norm of
the whole gradient (`swp="element"`). The code masks whole tensors and normalizes within them; only
that saves time, and it is the default. The code keeps one sample too few; here max(1, int(γ n)).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from sampa.loss import Loss
from sampa.messages import refuses_other_forms, require, require_choice
from sampa.method import (
    ASCENT,
    PERTURBED,
    Context,
    MethodDefaults,
    Mode,
    Move,
    Probe,
    Rho,
    Rounds,
    Samples,
    Update,
)
from sampa.optimizer import Bases, SharpnessAware
from sampa.pieces.geometry import along
from sampa.pieces.micro_batches import rows
from sampa.vectors.masks import below
from sampa.vectors.vector import Vector, multiply, restrict

ALL_SAMPLES = 0.99  # the authors' code selects no samples from this γ on


@dataclass(frozen=True, kw_only=True)
class ESAMMethod(MethodDefaults):
    """ESAM: both halves (SWP, SDS) can be turned off."""

    beta: float
    gamma: float
    swp: Literal["tensor", "element"]
    subset: Callable[[Context], Sequence[bool]] | None

    needs_loss_fn = True

    def __post_init__(self) -> None:
        require("beta", self.beta, 0 < self.beta <= 1, "in (0, 1]")
        require("gamma", self.gamma, 0 < self.gamma <= 1, "in (0, 1]")
        require_choice("swp", self.swp, ("tensor", "element"))

    def rounds(self, context: Context, state: None) -> Rounds:
        selects = self.gamma < ALL_SAMPLES
        clean: list[Tensor] = []
        chosen = self._subset(context)
        (g,) = yield (
            Probe(
                role=ASCENT,
                wrt=chosen if self.swp == "tensor" else None,
                observe=_collect(clean) if selects else None,
            ),
        )
        move = self._move(context, g, chosen)
        part = None
        if selects:
            perturbed: list[Tensor] = []
            forward = Mode(backward=False)
            yield (Probe(move, role=PERTURBED, mode=forward, observe=_collect(perturbed)),)
            part = rows(hardest(torch.cat(clean), torch.cat(perturbed), self.gamma))
        (g_tilde,) = yield (Probe(move, role=PERTURBED, samples=Samples(part)),)
        return Update(g_tilde)

    def _subset(self, context: Context) -> Sequence[bool]:
        """S: the tensors that are perturbed."""
        if self.subset is not None:
            return self.subset(context)
        if self.swp == "element" or context.t == 0:
            return [True] * len(context.x)
        return [context.random.number(i) < self.beta for i in range(len(context.x))]

    def _move(self, context: Context, g: Vector, chosen: Sequence[bool]) -> Move | None:
        if self.swp == "tensor":
            return along(context, g, g.norm, factor=1 / self.beta)  # x + (ρ/β) g_S / ‖g_S‖
        masked = restrict(g, chosen)
        if self.subset is None:
            draws = context.random.uniform(context.x)
            masked = multiply(masked, below(draws, self.beta, masked))
        return along(context, masked, g.norm, factor=1 / self.beta)  # x + (ρ/β) m ⊙ g / ‖g‖


def hardest(clean: Tensor, perturbed: Tensor, gamma: float) -> Tensor:
    """The samples whose loss grows most, a share γ of them and at least one, in their order."""
    k = max(1, int(gamma * len(clean)))
    growth = perturbed - clean
    return torch.sort(growth, descending=True, stable=True).indices[:k].sort().values


def _collect(losses: list[Tensor]) -> Callable[[Loss], None]:
    def observe(loss: Loss) -> None:
        losses.extend(loss.need("ESAM with gamma < 1", "per_sample"))

    return observe


@refuses_other_forms
def ESAM(
    base: Bases,
    rho: Rho = 0.05,
    beta: float = 0.5,
    gamma: float = 1.0,
    *,
    swp: Literal["tensor", "element"] = "tensor",
    subset: Callable[[Context], Sequence[bool]] | None = None,
    **options: Any,
) -> SharpnessAware:
    """SAM on a random subset of tensors and, with γ < 1, on the hardest samples.

    γ < 1 (SDS) needs `per_sample` losses from `loss_fn`.

    Defaults: SAMPa paper: SWP only, beta 0.5.
    """
    method = ESAMMethod(rho, beta=beta, gamma=gamma, swp=swp, subset=subset)
    return SharpnessAware(base, method, **options)
