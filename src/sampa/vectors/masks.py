"""Binary masks over all weights together: zeros and ones, shaped like the parameters."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from sampa.vectors.vector import Vector, Weights, add


def count(mask: Vector) -> int:
    """How many ones a mask has; asks the device once."""
    counts = [t.count_nonzero() for t in mask.present]
    return int(torch.stack([c.to(counts[0].device) for c in counts]).sum().item()) if counts else 0


def size(weights: Weights) -> int:
    """How many weights there are."""
    return sum(p.numel() for p in weights if p.requires_grad)


def below(scores: Vector, limit: float, like: Vector) -> Vector:
    """Ones where a score is less than the limit, with the entries and number types of `like`."""
    pairs = zip(scores, like, strict=True)
    return Vector(None if s is None or t is None else (s < limit).to(t.dtype) for s, t in pairs)


def top(scores: Vector, k: int, like: Iterable[Tensor | None]) -> Vector:
    """Ones on the k largest scores of all tensors together, ties by position.

    They have the types and devices of `like`. The device is not asked.
    """
    flat = torch.cat([t.flatten().to(scores.present[0].device) for t in scores.present])
    largest = torch.sort(flat, descending=True, stable=True).indices[:k]
    chosen = torch.zeros_like(flat).index_fill_(0, largest, 1)
    parts = chosen.split([t.numel() for t in scores.present])
    kinds = [t for s, t in zip(scores, like, strict=True) if s is not None and t is not None]
    # Copies: a mask is kept, and its tensors are saved one by one.
    return scores.filled(
        part.reshape(t.shape).to(t.device, t.dtype, copy=True)
        for part, t in zip(parts, kinds, strict=True)
    )


def swap(mask: Vector, drop_scores: Vector, growth_scores: Vector, n: int) -> Vector:
    """Drop the n live entries of least score, grow the n best among those that were dead.

    Where a tensor has no score (no gradient) its entries count as zeros.
    """
    kept = top(_scores_where(mask, 1, drop_scores), count(mask) - n, mask)
    grown = top(_scores_where(mask, 0, growth_scores), n, mask)
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
