"""Vectors in one piece of memory: an operation is then one kernel, not one for each parameter.

A network has hundreds of small tensors, and the work around a kernel costs more than the kernel.
How a sum rounds depends on where its numbers lie, so a layout is a function of the weights and of
which entries are there: one process, several ranks and a resumed run all lay a vector out alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

import torch
from torch import Tensor
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

Entries = Sequence[Tensor | None]
Pattern = tuple[bool, ...]
"""Which entries of a vector are there."""


class Layout:
    """Where the tensors of a vector lie in a flat buffer.

    Attributes:
        pattern: Which entries of the vector are there; the others have no memory.
        size: The number of elements of the buffer.
    """

    def __init__(self, like: Entries) -> None:
        present = [t for t in like if t is not None]
        self.pattern: Pattern = tuple(t is not None for t in like)
        self.size = sum(t.numel() for t in present)
        self.dtype, self.device = present[0].dtype, present[0].device
        self._shapes = [torch.empty(t.shape, device="meta") for t in present]
        strides = [gradient_stride(t) for t in present]
        row_major = all(s == t.stride() for s, t in zip(strides, self._shapes, strict=True))
        self._strides = None if row_major else strides

    def pack(self, entries: Entries) -> Tensor:
        """A copy of the entries in a buffer of their own."""
        if self._strides is None:
            return _flatten_dense_tensors([t for t in entries if t is not None])
        flat = torch.empty(self.size, dtype=self.dtype, device=self.device)
        present = [t for t in entries if t is not None]
        torch._foreach_copy_(list(self._views(flat)), present)
        return flat

    def unpack(self, flat: Tensor) -> tuple[Tensor | None, ...]:
        """The entries as views of a buffer."""
        views = iter(self._views(flat))
        return tuple(next(views) if there else None for there in self.pattern)

    def _views(self, flat: Tensor) -> Sequence[Tensor]:
        if self._strides is None:
            return _unflatten_dense_tensors(flat, self._shapes)
        views, offset = [], flat.storage_offset()
        for shape, stride in zip(self._shapes, self._strides, strict=True):
            views.append(flat.as_strided(shape.shape, stride, offset))
            offset += shape.numel()
        return views


class Packing:
    """The layouts of vectors that are shaped like some weights."""

    def __init__(self, weights: Sequence[Tensor]) -> None:
        self._weights = list(weights)
        self._kinds = [_kind(p) for p in weights]
        kinds = {(p.dtype, p.device) for p in weights}
        self._is_possible = len(kinds) == 1 and all(dtype.is_floating_point for dtype, _ in kinds)
        self._layouts: dict[Pattern, Layout] = {}

    def fits(self, weights: Sequence[Tensor]) -> bool:
        """Whether these are the weights that it was made for, as they were then."""
        same = len(weights) == len(self._weights) and all(map(_is, weights, self._weights))
        return same and self._kinds == [_kind(p) for p in weights]

    def knows(self, layout: Layout | None) -> TypeGuard[Layout]:
        """Whether it is one of these weights' layouts."""
        return any(layout is known for known in self._layouts.values())

    def layout(self, pattern: Pattern) -> Layout | None:
        """The layout of a vector with entries where `pattern` says; None if it has none."""
        if not self._is_possible or not any(pattern):
            return None
        if pattern not in self._layouts:
            pairs = zip(self._weights, pattern, strict=True)
            self._layouts[pattern] = Layout([p if there else None for p, there in pairs])
        return self._layouts[pattern]


def gradient_stride(p: Tensor) -> tuple[int, ...]:
    """The layout that autograd and DDP give a gradient: its parameter's, if it has no gaps."""
    dense = torch.empty_like(p, device="meta").stride() == p.stride()
    return p.stride() if dense else torch.empty(p.shape, device="meta").stride()


def _kind(p: Tensor) -> tuple[object, ...]:
    """What `model.to(...)` may change of a weight."""
    return p.stride(), p.dtype, p.device


def _is(a: Tensor, b: Tensor) -> bool:
    return a is b
