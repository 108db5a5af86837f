"""Arithmetic on vectors shaped like the parameters; the only multi-tensor code.

A vector holds one tensor per parameter, in the order of the optimizer's groups. An entry is None
where a parameter has no gradient: "no gradient" is not "a gradient of zero", since a base optimizer
leaves such a parameter alone (no weight decay, no momentum). Where its tensors lie in one buffer
(see packing.py), an operation on vectors of the same layout is one kernel.

Vectors are values: nothing here changes one after it was made, so that its norm is computed once.
Only the live weights are changed in place, through `add_` and `copy_`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch import Tensor

from sampa.vectors.packing import Buffer, Layout, Packing, Pattern, pattern_of
from sampa.vectors.reductions import LOW_PRECISION, global_norm, inner_product

Weights = Sequence[Tensor]  # the live parameters, which moves change in place


class Vector:
    """One tensor (or None) per parameter, with its global L2 norm."""

    __slots__ = ("_buffer", "_norm", "_tensors", "flat")

    def __init__(self, tensors: Sequence[Tensor | None]) -> None:
        self.flat: Tensor | None = None
        self._buffer: Buffer | None = None
        self._tensors: tuple[Tensor | None, ...] | None = tuple(tensors)
        self._norm: float | None = None

    @classmethod
    def packed(cls, buffer: Buffer) -> Vector:
        """The vector that lies in a buffer."""
        v = cls(())
        v.flat = buffer.flat.detach()  # by this the buffer knows that it is in use
        v._buffer, v._tensors = buffer, None
        return v

    @property
    def layout(self) -> Layout | None:
        """How it lies in its buffer; None if it has none."""
        return None if self._buffer is None else self._buffer.layout

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        if self._tensors is None:
            assert self.flat is not None
            assert self.layout is not None
            self._tensors = self.layout.entries(self.layout.views(self.flat))
        return self._tensors

    def borrowed(self) -> tuple[Tensor | None, ...]:
        """Its tensors for a moment: nobody may keep one beyond the life of this vector."""
        if self._buffer is None or self._tensors is not None:
            return self.tensors
        return self._buffer.layout.entries(self._buffer.views)

    @property
    def pattern(self) -> Pattern:
        """Which entries are there."""
        if self.layout is not None:
            return self.layout.pattern
        return pattern_of(self.tensors)

    def __iter__(self) -> Iterator[Tensor | None]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.pattern)

    def __reduce__(self) -> tuple[type[Vector], tuple[list[Tensor | None]]]:
        return Vector, (list(self.tensors),)

    @property
    def norm(self) -> float:
        """‖v‖ over all tensors together, in float32 at least."""
        if self._norm is None:
            whole = [t for t in self.tensors if t is not None] if self.flat is None else [self.flat]
            self._norm = global_norm(whole)
        return self._norm

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.norm)

    def map(self, function: Callable[[Tensor], Tensor]) -> Vector:
        """The vector of `function`, which works element by element, of every entry."""
        if self.flat is not None and self.layout is not None:
            buffer = self.layout.take()
            buffer.flat.copy_(function(self.flat))
            return Vector.packed(buffer)
        return Vector([None if t is None else function(t) for t in self.tensors])

    def clone(self) -> Vector:
        if self.layout is None:
            return self.map(torch.clone)
        return self.map(lambda flat: flat)

    def storages(self) -> set[int]:
        """The pieces of memory that it lies in."""
        whole = self.tensors if self.flat is None else [self.flat]
        return {t.untyped_storage().data_ptr() for t in whole if t is not None}


def copied(tensors: Sequence[Tensor | None], layout: Layout | None) -> Vector:
    """A vector of copies of the tensors: in one buffer if there is a layout, else in pieces."""
    return Vector(tensors).clone() if layout is None else Vector.packed(layout.pack(tensors))


def pack(tensors: Sequence[Tensor | None], packing: Packing) -> Vector:
    """The vector of the tensors: copies in one buffer if that is possible, else themselves."""
    layout = packing.layout(pattern_of(tensors))
    return Vector(tensors) if layout is None else copied(tensors, layout)


def dot(a: Vector, b: Vector) -> float:
    """⟨a, b⟩; an absent entry counts as zero, half precision is summed in float32."""
    buffers = _buffers(a, b)
    return inner_product(_both(a, b) if buffers is None else [buffers[:2]])


def _both(a: Vector, b: Vector) -> list[tuple[Tensor, Tensor]]:
    return [(s, t) for s, t in zip(a, b, strict=True) if s is not None and t is not None]


def _buffers(a: Vector, b: Vector) -> tuple[Tensor, Tensor, Layout] | None:
    """The memory of two vectors, if they are laid out alike."""
    if a.flat is None or b.flat is None or a.layout is None or a.layout is not b.layout:
        return None
    return a.flat, b.flat, a.layout


def cosine(a: Vector, b: Vector) -> float:
    """⟨a, b⟩ / (‖a‖ ‖b‖), or NaN where one of them is zero."""
    product = a.norm * b.norm
    return dot(a, b) / product if product > 0 else math.nan


def scale(v: Vector, factor: float) -> Vector:
    """factor · v."""
    if v.flat is not None and v.layout is not None:
        buffer = v.layout.take()
        torch.mul(v.flat, factor, out=buffer.flat)
        return Vector.packed(buffer)
    present = [t for t in v if t is not None]
    return _fill(v, torch._foreach_mul(present, factor) if present else [])


def add(a: Vector, b: Vector, alpha: float = 1.0) -> Vector:
    """a + α b; an absent entry counts as zero, and two absent ones stay absent."""
    return _joined(
        a,
        b,
        lambda s, t, out: torch.add(s, t, alpha=alpha, out=out),
        lambda s, t: torch._foreach_add(s, t, alpha=alpha),
        lambda s: s,
        lambda t: t * alpha,
    )


def mix(a: Vector, b: Vector, lam: float) -> Vector:
    """(1 − λ) a + λ b; an absent entry counts as zero, and two absent ones stay absent."""
    if lam in (0, 1):  # an entry that is absent stays absent
        return b if lam else a
    return _joined(
        a,
        b,
        lambda s, t, out: torch.mul(s, 1 - lam, out=out).add_(t, alpha=lam),
        lambda s, t: torch._foreach_add(torch._foreach_mul(s, 1 - lam), t, alpha=lam),
        lambda s: s * (1 - lam),
        lambda t: t * lam,
    )


def multiply(a: Vector, b: Vector) -> Vector:
    """a · b element by element; absent where one of them is."""
    return _joined(
        a,
        b,
        lambda s, t, out: torch.mul(s, t, out=out),
        lambda s, t: torch._foreach_mul(s, t),
        lambda s: None,
        lambda t: None,
    )


def _joined(
    a: Vector,
    b: Vector,
    whole: Callable[[Tensor, Tensor, Tensor], Tensor],
    many: Callable[[list[Tensor], list[Tensor]], Sequence[Tensor]],
    only_a: Callable[[Tensor], Tensor | None],
    only_b: Callable[[Tensor], Tensor | None],
) -> Vector:
    """A function of two vectors, element by element.

    Args:
        a: The first vector.
        b: The second one.
        whole: The function of two buffers, into a third.
        many: The same of lists of tensors, where a vector is in pieces.
        only_a: An entry that b has not.
        only_b: An entry that a has not.
    """
    buffers = _buffers(a, b)
    if buffers is not None:
        s, t, layout = buffers
        buffer = layout.take()
        whole(s, t, buffer.flat)
        return Vector.packed(buffer)
    both = _both(a, b)
    joined = iter(many([s for s, _ in both], [t for _, t in both]) if both else ())
    entries: list[Tensor | None] = []
    for s, t in zip(a, b, strict=True):
        if s is not None and t is not None:
            entries.append(next(joined))
        else:
            entries.append(only_a(s) if s is not None else None if t is None else only_b(t))
    return Vector(entries)


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


class Lent(list[Tensor]):
    """Weights that lie in the memory of a vector.

    Attributes:
        memory: That vector, which changes with them.
    """

    def __init__(self, weights: Weights, memory: Vector) -> None:
        super().__init__(weights)
        self.memory = memory


def add_(weights: Weights, v: Vector, alphas: Sequence[float]) -> None:
    """weights += alphas · v in place, one factor per tensor (parameter groups differ in ρ)."""
    buffers = _buffers(weights.memory, v) if isinstance(weights, Lent) else None
    # In half precision numbers at the end of a tensor, which fill no vector register of the
    # processor, round otherwise than the rest of it.
    if buffers is not None and buffers[0].dtype not in LOW_PRECISION and len(set(alphas)) == 1:
        buffers[0].add_(buffers[1], alpha=alphas[0])
        return
    rows = zip(weights, v.borrowed(), alphas, strict=True)
    present = [(w, t, c) for w, t, c in rows if t is not None]
    by_factor: dict[float, list[tuple[Tensor, Tensor]]] = {}
    for w, t, c in present:
        by_factor.setdefault(c, []).append((w, t))
    for factor, pairs in by_factor.items():
        torch._foreach_add_([w for w, _ in pairs], [t for _, t in pairs], alpha=factor)


def copy_(targets: Weights, sources: Iterable[Tensor | None]) -> None:
    """targets ← sources in place, bit for bit, where a source is there."""
    pairs = [(t, s) for t, s in zip(targets, sources, strict=True) if s is not None]
    if pairs:
        torch._foreach_copy_([t for t, _ in pairs], [s for _, s in pairs])


def _fill(pattern: Vector, values: Sequence[Tensor]) -> Vector:
    """`values` where `pattern` has entries, None elsewhere."""
    remaining = iter(values)
    return Vector([None if t is None else next(remaining) for t in pattern])
