"""Others' optimizers, written again from their formulas; nothing of our methods is used.

`PlainSAM` is the SAM of davda54/sam, as its example uses it. `ScriptSAMPa` is the SAMPa of the
paper's script (LIONS-EPFL/SAMPa), with all that docs/maths.md lists as different in it, its two
gradients one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

PEER_EPS = 1e-12
BatchOf = Callable[[Any], Tensor]
"""The loss of a batch."""


@contextmanager
def without_statistics(model: nn.Module) -> Iterator[None]:
    """davda54's `disable_running_stats`: what BatchNorm keeps does not move."""
    layers = [m for m in model.modules() if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d)]
    usual = [layer.momentum for layer in layers]
    for layer in layers:
        layer.momentum = 0.0
    yield
    for layer, momentum in zip(layers, usual, strict=True):
        layer.momentum = momentum


def norm_of(gradients: list[Tensor]) -> Tensor:
    return torch.linalg.vector_norm(torch.stack([g.norm() for g in gradients]))


@dataclass
class PlainSAM:
    """`first_step`, `second_step`: climb, come back, step with the gradient from above."""

    model: nn.Module
    base: torch.optim.Optimizer
    rho: float

    def __post_init__(self) -> None:
        self.weights = [p for p in self.model.parameters() if p.requires_grad]

    def step(self, loss_of: BatchOf, batch: Any) -> Tensor:
        loss = loss_of(batch)
        gradients = torch.autograd.grad(loss, self.weights)
        before = [p.detach().clone() for p in self.weights]
        with torch.no_grad():
            scale = self.rho / (norm_of(list(gradients)) + PEER_EPS)
            for p, g in zip(self.weights, gradients, strict=True):
                p.add_(g * scale)
        with without_statistics(self.model):
            climbed = torch.autograd.grad(loss_of(batch), self.weights)
        for p, old, g in zip(self.weights, before, climbed, strict=True):
            p.data, p.grad = old, g
        self.base.step()
        return loss.detach()


@dataclass
class ScriptSAMPa:
    """A plain step on the first batch; then both gradients, of which only the mix is kept whole."""

    model: nn.Module
    base: torch.optim.Optimizer
    rho: float
    lam: float = 0.2
    held: tuple[Any, list[Tensor]] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.weights = [p for p in self.model.parameters() if p.requires_grad]

    def step(self, loss_of: BatchOf, batch: Any) -> Tensor:
        loss = loss_of(batch) if self.held is None else None
        if loss is not None:
            g = list(torch.autograd.grad(loss, self.weights))
            self._update(g)
            self.held = batch, g
            return loss.detach()
        assert self.held is not None
        before, g = self.held
        y_loss, at_y = self._at_y(loss_of, batch, g)
        at_x = self._at_x_tilde(loss_of, before, g)
        mixed = [(1 - self.lam) * a + self.lam * b for a, b in zip(at_x, at_y, strict=True)]
        # Only the mix is exchanged: the gradient at y is what is left of it.
        kept = [(m - (1 - self.lam) * a) / self.lam for m, a in zip(mixed, at_x, strict=True)]
        self._update(mixed)
        self.held = batch, kept
        return y_loss

    def _at_x_tilde(self, loss_of: BatchOf, batch: Any, g: list[Tensor]) -> list[Tensor]:
        """The rank whose BatchNorm statistics are saved; it comes back by subtracting."""
        with torch.no_grad():
            scale = self.rho / (norm_of(g) + PEER_EPS)
            moves = [gradient * scale for gradient in g]
            for p, move in zip(self.weights, moves, strict=True):
                p.add_(move)
        gradients = list(torch.autograd.grad(loss_of(batch), self.weights))
        with torch.no_grad():
            for p, move in zip(self.weights, moves, strict=True):
                p.sub_(move)
        return gradients

    def _at_y(self, loss_of: BatchOf, batch: Any, g: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        with torch.no_grad():
            moves = [self._lookahead(p, v) for p, v in zip(self.weights, g, strict=True)]
            for p, move in zip(self.weights, moves, strict=True):
                p.sub_(move)
        with without_statistics(self.model):
            loss = loss_of(batch)
            gradients = list(torch.autograd.grad(loss, self.weights))
        with torch.no_grad():
            for p, move in zip(self.weights, moves, strict=True):
                p.add_(move)
        return loss.detach(), gradients

    def _lookahead(self, p: nn.Parameter, g: Tensor) -> Tensor:
        """A step of SGD; weight decay is left out where there is no momentum buffer yet."""
        group = self.base.param_groups[0]
        buffer = self.base.state.get(p, {}).get("momentum_buffer")
        if buffer is None:
            return group["lr"] * g
        return group["lr"] * (group["momentum"] * buffer + g + group["weight_decay"] * p)

    def _update(self, gradients: list[Tensor]) -> None:
        for p, g in zip(self.weights, gradients, strict=True):
            p.grad = g
        self.base.step()
