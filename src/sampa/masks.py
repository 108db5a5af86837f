"""Binary masks over all weights together: zeros and ones, shaped like the parameters."""

from __future__ import annotations

import torch
from torch import Tensor

from sampa.vectors import Vector, Weights


def count(mask: Vector) -> int:
    """How many ones a mask has."""
    return sum(int(t.sum().item()) for t in mask if t is not None)


def size(weights: Weights) -> int:
    """How many weights there are."""
    return sum(p.numel() for p in weights if p.requires_grad)


def top(scores: Vector, k: int) -> Vector:
    """Ones on the k largest scores of all tensors together, ties by position."""
    flat = torch.cat([t.flatten().to("cpu", torch.float64) for t in scores if t is not None])
    chosen = torch.zeros_like(flat)
    chosen[torch.sort(flat, descending=True, stable=True).indices[:k]] = 1
    return _shaped(chosen, scores)


def random_scores(weights: Weights, generator: torch.Generator) -> Vector:
    """Uniform numbers over the trainable weights, the same on all ranks."""
    return Vector(
        [
            torch.rand(p.shape, generator=generator).to(p.device, p.dtype)
            if p.requires_grad
            else None
            for p in weights
        ]
    )


def swap(mask: Vector, drop_scores: Vector, growth_scores: Vector, n: int) -> Vector:
    """Drop the n live entries of least score, grow the n best among those that were dead."""
    far = float("inf")
    live = [t > 0 for t in mask if t is not None]
    drops = Vector([_outside(s, m, -far) for s, m in _pairs(drop_scores, live)])
    growths = Vector([_outside(s, ~m, -far) for s, m in _pairs(growth_scores, live)])
    kept, grown = top(drops, count(mask) - n), top(growths, n)
    pairs = zip(_present(kept), _present(grown), strict=True)
    return _refill(mask, [k + g for k, g in pairs])


def _outside(scores: Tensor, where: Tensor, value: float) -> Tensor:
    return scores.masked_fill(~where, value)


def _present(v: Vector) -> list[Tensor]:
    return [t for t in v if t is not None]


def _pairs(scores: Vector, live: list[Tensor]) -> list[tuple[Tensor, Tensor]]:
    return list(zip(_present(scores), live, strict=True))


def _refill(pattern: Vector, values: list[Tensor]) -> Vector:
    remaining = iter(values)
    return Vector([None if t is None else next(remaining) for t in pattern])


def _shaped(flat: Tensor, like: Vector) -> Vector:
    present = _present(like)
    pieces = flat.split([t.numel() for t in present])
    shaped = [
        piece.reshape(t.shape).to(t.device, t.dtype)
        for piece, t in zip(pieces, present, strict=True)
    ]
    return _refill(like, shaped)
