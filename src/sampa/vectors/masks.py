"""Binary masks over all weights together: zeros and ones, shaped like the parameters."""

from __future__ import annotations

import torch
from torch import Tensor

from sampa.vectors.vector import Vector, Weights, add


def count(mask: Vector) -> int:
    """How many ones a mask has."""
    return sum(int(t.count_nonzero().item()) for t in mask if t is not None)


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
    """Drop the n live entries of least score, grow the n best among those that were dead.

    Where a tensor has no score (no gradient) its entries count as zeros.
    """
    kept = top(_scores_where(mask, 1, drop_scores), count(mask) - n)
    grown = top(_scores_where(mask, 0, growth_scores), n)
    return add(kept, grown)


def _scores_where(mask: Vector, value: int, scores: Vector) -> Vector:
    """The scores of the entries where the mask has this value, −∞ for the others."""
    entries: list[Tensor | None] = []
    for m, s in zip(mask, scores, strict=True):
        if m is None:
            entries.append(None)
        else:
            score = torch.zeros_like(m) if s is None else s
            entries.append(score.masked_fill(m != value, -torch.inf))
    return Vector(entries)


def _shaped(flat: Tensor, like: Vector) -> Vector:
    pieces = flat.split([t.numel() for t in like.present])
    pairs = zip(pieces, like.present, strict=True)
    return like.filled(piece.reshape(t.shape).to(t.device, t.dtype) for piece, t in pairs)
