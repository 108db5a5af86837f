"""What of a vector is orthogonal to another, and what of a difference is more than rounding."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sampa.vectors.vector import Vector, add, dot, scale


def orthogonal_part(a: Vector, b: Vector) -> Vector:
    """a − (⟨a, b⟩ / ‖b‖²) b, exactly zero where it is zero up to rounding.

    Dividing rounding noise by its norm would blow it up to full length.
    """
    share = torch.where(b.norm > 0, dot(a, b) / b.norm**2, 0.0)
    return without_noise(add(a, b, alpha=-share), a)


def each_tensor(function: Callable[[Vector, Vector], Vector], a: Vector, b: Vector) -> Vector:
    """`function` of each pair of tensors on its own; a's tensor where b's is absent."""
    entries: list[Tensor | None] = []
    for s, t in zip(a, b, strict=True):
        if s is None or t is None:
            entries.append(s if t is None else None)
        else:
            entries.append(function(Vector([s]), Vector([t])).tensors[0])
    return Vector(entries)


def without_noise(difference: Vector, of: Vector) -> Vector:
    """A difference formed from `of`, or exactly zero where it is zero up to rounding."""
    precisions = [torch.finfo(t.dtype).eps for t in of.present]
    coarsest = min(max(precisions, default=0.0), torch.finfo(torch.float32).eps)
    is_noise = difference.norm <= 100 * coarsest * of.norm
    return scale(difference, torch.where(is_noise, 0.0, 1.0))
