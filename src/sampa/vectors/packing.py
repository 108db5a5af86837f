"""Vectors in one piece of memory: an operation is then one kernel, not one for each parameter.

A network has hundreds of small tensors, and the work around a kernel costs more than the kernel.
How a sum rounds depends on where its numbers lie, so a layout is a function of the weights and of
which entries are there: one process, several ranks and a resumed run all lay a vector out alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import TypeGuard

import torch
from torch import Tensor

Entries = Sequence[Tensor | None]
Pattern = tuple[bool, ...]
"""Which entries of a vector are there."""

MOST_KEPT = 4  # buffers of a layout that wait to be used again ...
LARGEST_KEPT = 1 << 25  # ... if they are not larger than this, in bytes
ALIGNMENT = 64  # bytes, of the memory that torch gives a tensor on a CPU


class Buffer:
    """Memory for one vector.

    Attributes:
        flat: All of it.
    """

    def __init__(self, flat: Tensor, layout: Layout) -> None:
        self.flat = flat
        self.layout = layout
        self._views: list[Tensor] | None = None
        self._uses_when_free = _uses(flat)

    @property
    def views(self) -> list[Tensor]:
        """Its parts, one for each entry that is there.

        They are for work in place only: whoever keeps one would see another vector in it later.
        """
        if self._views is None:
            before = _uses(self.flat)
            self._views = self.layout.views(self.flat)
            self._uses_when_free += _uses(self.flat) - before
        return self._views

    def is_free(self) -> bool:
        """Whether nobody looks at this memory any more, not even through a view."""
        return self._uses_when_free > 0 and _uses(self.flat) == self._uses_when_free


class Layout:
    """Where the tensors of a vector lie in a buffer.

    Attributes:
        pattern: Which entries of the vector are there; the others have no memory.
        size: The number of elements of a buffer.
        has_gaps: Whether some of them belong to no tensor, so that each can start at an address
            that is a multiple of `alignment` bytes.
    """

    def __init__(self, like: Entries, alignment: int = 1) -> None:
        present = [t for t in like if t is not None]
        self.pattern = pattern_of(like)
        self.dtype, self.device = present[0].dtype, present[0].device
        self._places: list[tuple[torch.Size, tuple[int, ...], int]] = []
        self.size = 0
        for t in present:
            self.size += -self.size % max(1, alignment // self.dtype.itemsize)
            self._places.append((t.shape, gradient_stride(t), self.size))
            self.size += t.numel()
        self.has_gaps = self.size > sum(t.numel() for t in present)
        # On a GPU the caching allocator does this.
        is_small = self.size * self.dtype.itemsize <= LARGEST_KEPT
        self._keeps = is_small and self.device.type == "cpu"
        self._kept: list[Buffer] = []

    def take(self) -> Buffer:
        """Memory for a vector, with anything in it.

        The first touch of fresh memory takes longer than what is then done with it, so a few
        buffers are kept and used again when nobody looks at them any more.
        """
        for buffer in self._kept:
            if buffer.is_free():
                return buffer
        flat = torch.empty(self.size, dtype=self.dtype, device=self.device)
        buffer = Buffer(flat, self)
        if self._keeps and len(self._kept) < MOST_KEPT:
            self._kept.append(buffer)
        return buffer

    def fits(self, tensors: Sequence[Tensor]) -> bool:
        """Whether these, for the entries that are there, have their shapes and kind."""
        kinds = {(t.dtype, t.device) for t in tensors}
        shapes = [shape for shape, _, _ in self._places]
        return kinds == {(self.dtype, self.device)} and [t.shape for t in tensors] == shapes

    def pack(self, entries: Entries) -> Buffer:
        """A copy of the entries."""
        buffer = self.take()
        torch._foreach_copy_(buffer.views, [t for t in entries if t is not None])
        return buffer

    def entries(self, views: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
        """The views in their places, None elsewhere."""
        remaining = iter(views)
        return tuple(next(remaining) if there else None for there in self.pattern)

    def views(self, flat: Tensor) -> list[Tensor]:
        """The parts of a buffer, one for each entry that is there."""
        start = flat.storage_offset()
        return [flat.as_strided(shape, stride, start + at) for shape, stride, at in self._places]


class Packing:
    """The layouts of vectors that are shaped like some weights."""

    def __init__(self, weights: Sequence[Tensor]) -> None:
        self._weights = list(weights)
        self._kinds = _kinds(weights)
        self._layouts: dict[Pattern, Layout | None] = {}
        self._aligned: dict[Pattern, Layout | None] = {}

    def fits(self, weights: Sequence[Tensor]) -> bool:
        """Whether these are the weights that it was made for, as they were then."""
        same = len(weights) == len(self._weights) and all(map(is_, weights, self._weights))
        return same and self._kinds == _kinds(weights)

    def knows(self, layout: Layout | None) -> TypeGuard[Layout]:
        """Whether it is one of these weights' layouts."""
        return layout is not None and any(layout is known for known in self._layouts.values())

    def layout(self, pattern: Pattern) -> Layout | None:
        """The layout of a vector with entries where `pattern` says.

        None if it has no entries, or if they are not all of one kind of real numbers.
        """
        if pattern not in self._layouts:
            like = self._like(pattern)
            kinds = {(p.dtype, p.device) for p in like if p is not None}
            fits = len(kinds) == 1 and all(dtype.is_floating_point for dtype, _ in kinds)
            self._layouts[pattern] = Layout(like) if fits else None
        return self._layouts[pattern]

    def layout_for_weights(self, pattern: Pattern) -> Layout | None:
        """A layout in which each tensor is aligned as it would be in memory of its own.

        How a product of matrices rounds depends on that. It is the vectors' layout if that will do;
        if not, a buffer has gaps with anything in them.
        """
        if pattern not in self._aligned:
            plain = self.layout(pattern)
            aligned = None if plain is None else Layout(self._like(pattern), ALIGNMENT)
            self._aligned[pattern] = aligned if aligned is not None and aligned.has_gaps else plain
        return self._aligned[pattern]

    def _like(self, pattern: Pattern) -> Entries:
        return [p if there else None for p, there in zip(self._weights, pattern, strict=True)]


def pattern_of(entries: Entries) -> Pattern:
    """Which of them are there."""
    return tuple(t is not None for t in entries)


def gradient_stride(p: Tensor) -> tuple[int, ...]:
    """The layout that autograd and DDP give a gradient: its parameter's, if it has no gaps."""
    dense = torch.empty_like(p, device="meta").stride() == p.stride()
    return p.stride() if dense else torch.empty(p.shape, device="meta").stride()


def are_alone(tensors: Sequence[Tensor]) -> bool:
    """Whether no other tensors look at the memory of these; False if this torch cannot tell."""
    return _USES_OF_ONE > 0 and all(_uses(t) == _USES_OF_ONE for t in tensors)


_storage_uses = getattr(torch._C, "_storage_Use_Count", lambda _: 0)


def _uses(t: Tensor) -> int:
    """How many tensors share its memory; 0 where this torch cannot tell."""
    return _storage_uses(t.untyped_storage()._cdata)


_USES_OF_ONE = _uses(torch.zeros(1, device="cpu"))


def _kinds(weights: Sequence[Tensor]) -> list[tuple[object, ...]]:
    """What `model.to(...)` may change of the weights."""
    return [(p.stride(), p.dtype, p.device) for p in weights]
