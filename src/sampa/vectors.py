"""Arithmetic on vectors shaped like the parameters; the only multi-tensor code.

A vector holds one tensor per parameter, in the order of the optimizer's groups. An entry is None
where a parameter has no gradient: "no gradient" is not "a gradient of zero", since a base optimizer
leaves such a parameter alone (no weight decay, no momentum).

Vectors are values: nothing here changes one after it was made, so that its norm is computed once.
Only the live weights are changed in place, through `add_` and `copy_`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

LOW_PRECISION = (torch.float16, torch.bfloat16)

Weights = Sequence[Tensor]  # the live parameters, which moves change in place


class Vector:
    """One tensor (or None) per parameter, with its global L2 norm."""

    __slots__ = ("_norm", "tensors")

    def __init__(self, tensors: Sequence[Tensor | None]) -> None:
        self.tensors: tuple[Tensor | None, ...] = tuple(tensors)
        self._norm: float | None = None

    def __iter__(self) -> Iterator[Tensor | None]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    @property
    def norm(self) -> float:
        """‖v‖ over all tensors together, in float32 at least."""
        if self._norm is None:
            self._norm = global_norm([t for t in self.tensors if t is not None])
        return self._norm

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.norm)

    def map(self, function: Callable[[Tensor], Tensor]) -> Vector:
        """The vector of `function` of every entry that is there."""
        return Vector([None if t is None else function(t) for t in self.tensors])

    def clone(self) -> Vector:
        return self.map(torch.clone)


def global_norm(tensors: Sequence[Tensor]) -> float:
    """One norm over several tensors; half precision is summed in float32."""
    if not tensors:
        return 0.0
    dtypes = {t.dtype for t in tensors}
    if torch.float64 in dtypes:  # a norm cannot narrow its input
        tensors = [t.float() if t.dtype in LOW_PRECISION else t for t in tensors]
        dtypes -= set(LOW_PRECISION)
    dtype = torch.float32 if dtypes & set(LOW_PRECISION) else None
    norms = torch._foreach_norm(list(tensors), 2, dtype=dtype)
    device = norms[0].device
    stacked = torch.stack([n.to(device, torch.float64) for n in norms])
    return torch.linalg.vector_norm(stacked).item()


def dot(a: Vector, b: Vector) -> float:
    """⟨a, b⟩; an absent entry counts as zero, half precision is summed in float32."""
    terms = [
        torch.dot(_summable(s), _summable(t)).to("cpu", torch.float64)
        for s, t in zip(a, b, strict=True)
        if s is not None and t is not None
    ]
    return torch.stack(terms).sum().item() if terms else 0.0


def _summable(t: Tensor) -> Tensor:
    return t.flatten().to(torch.float32) if t.dtype in LOW_PRECISION else t.flatten()


def cosine(a: Vector, b: Vector) -> float:
    """⟨a, b⟩ / (‖a‖ ‖b‖), or NaN where one of them is zero."""
    product = a.norm * b.norm
    return dot(a, b) / product if product > 0 else math.nan


def scale(v: Vector, factor: float) -> Vector:
    """factor · v."""
    present = [t for t in v if t is not None]
    return _fill(v, torch._foreach_mul(present, factor) if present else [])


def add(a: Vector, b: Vector, alpha: float = 1.0) -> Vector:
    """a + α b; an absent entry counts as zero, and two absent ones stay absent."""
    both = [(s, t) for s, t in zip(a, b, strict=True) if s is not None and t is not None]
    sums: Iterator[Tensor] = iter(
        torch._foreach_add([s for s, _ in both], [t for _, t in both], alpha=alpha) if both else ()
    )
    entries: list[Tensor | None] = []
    for s, t in zip(a, b, strict=True):
        if s is not None and t is not None:
            entries.append(next(sums))
        else:
            entries.append(s if t is None else t * alpha)
    return Vector(entries)


def mix(a: Vector, b: Vector, lam: float) -> Vector:
    """(1 − λ) a + λ b."""
    if lam in (0, 1):  # an entry that is absent stays absent
        return b if lam else a
    return add(scale(a, 1 - lam), b, alpha=lam)


def multiply(a: Vector, b: Vector) -> Vector:
    """a · b element by element; absent where one of them is."""
    return Vector([None if s is None or t is None else s * t for s, t in zip(a, b, strict=True)])


def weighted_sum(vectors: Sequence[Vector], shares: Sequence[float]) -> Vector:
    """Σ share · v, in the order given."""
    if len(vectors) == 1 and shares[0] == 1.0:
        return vectors[0]
    total = scale(vectors[0], shares[0])
    for v, share in zip(vectors[1:], shares[1:], strict=True):
        total = add(total, v, alpha=share)
    return total


def orthogonal_part(a: Vector, b: Vector) -> Vector | None:
    """a − (⟨a, b⟩ / ‖b‖²) b, or None where it is zero up to rounding.

    Dividing rounding noise by its norm would blow it up to full length.
    """
    if b.norm == 0:
        return a if a.norm > 0 else None
    part = add(a, b, alpha=-dot(a, b) / b.norm**2)
    return None if is_rounding_noise(part, a) else part


def each_tensor(
    function: Callable[[Vector, Vector], Vector | None], a: Vector, b: Vector
) -> Vector:
    """`function` of each pair of tensors on its own; a's tensor where b's is absent."""
    entries: list[Tensor | None] = []
    for s, t in zip(a, b, strict=True):
        alone = None if s is None or t is None else function(Vector([s]), Vector([t]))
        entries.append(s if t is None else None if alone is None else alone.tensors[0])
    return Vector(entries)


def is_rounding_noise(difference: Vector, of: Vector) -> bool:
    """Whether a difference formed from `of` is zero up to rounding."""
    precisions = [torch.finfo(t.dtype).eps for t in of if t is not None]
    coarsest = min(max(precisions, default=0.0), torch.finfo(torch.float32).eps)
    return difference.norm <= 100 * coarsest * of.norm


def restrict(v: Vector, keep: Sequence[bool]) -> Vector:
    """v on the chosen tensors, absent elsewhere."""
    return Vector([t if kept else None for t, kept in zip(v, keep, strict=True)])


def restrict_to(v: Vector, pattern: Vector) -> Vector:
    """v where `pattern` has an entry, absent elsewhere."""
    if all(t is not None for t in pattern):
        return v
    return restrict(v, [t is not None for t in pattern])


def add_(weights: Weights, v: Vector, alphas: Sequence[float]) -> None:
    """weights += alphas · v in place, one factor per tensor (parameter groups differ in ρ)."""
    present = [(w, t, c) for w, t, c in zip(weights, v, alphas, strict=True) if t is not None]
    by_factor: dict[float, list[tuple[Tensor, Tensor]]] = {}
    for w, t, c in present:
        by_factor.setdefault(c, []).append((w, t))
    for factor, pairs in by_factor.items():
        torch._foreach_add_([w for w, _ in pairs], [t for _, t in pairs], alpha=factor)


def copy_(targets: Weights, sources: Weights) -> None:
    """targets ← sources in place, bit for bit."""
    if targets:
        torch._foreach_copy_(list(targets), list(sources))


def _fill(pattern: Vector, values: Sequence[Tensor]) -> Vector:
    """`values` where `pattern` has entries, None elsewhere."""
    remaining = iter(values)
    return Vector([None if t is None else next(remaining) for t in pattern])
