"""Leaving x_t for a probe, and coming back to it bit for bit.

A copy of the weights is moved, and the weights lie in its memory for a while: x_t itself is not
touched. Where somebody else knows the address of their memory (another tensor that looks at it, a
graph on a GPU) the weights are moved where they are, and the copy is written back. Subtracting the
move again would be no way back: it rounds, and replicas would drift apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version

from sampa.execution.profiling import marked
from sampa.method import Move
from sampa.vectors.packing import Packing, are_alone, pattern_of
from sampa.vectors.vector import Lent, Vector, Weights, copied, copy_


class Excursions:
    """Takes the weights elsewhere and back.

    Attributes:
        copies: How many copies of the weights there were at once; 0 if they never left.
    """

    def __init__(self) -> None:
        self.copies = 0
        self._now = 0

    @contextmanager
    def to(self, move: Move | None, weights: Weights, packing: Packing) -> Iterator[None]:
        """Hold the weights where `move` takes them inside the block, at x_t after it."""
        if move is None:
            yield
            return
        with torch.no_grad():
            copy = _copy(weights, packing)
        way = _in_memory_of(copy, weights) if _may_leave(weights) else _in_place(copy, weights)
        self._now += 1
        self.copies = max(self.copies, self._now)
        try:
            with way as lent:
                with torch.no_grad(), marked("move"):
                    move(lent)
                yield
        finally:
            self._now -= 1
            torch.clear_autocast_cache()  # cast copies of the moved weights


def _copy(weights: Weights, packing: Packing) -> Vector:
    """Of those that move."""
    entries = [p if p.requires_grad else None for p in weights]
    return copied(entries, packing.layout_for_weights(pattern_of(entries)))


@contextmanager
def _in_memory_of(copy: Vector, weights: Weights) -> Iterator[Lent]:
    """Let the weights lie in the memory of the copy inside the block."""
    entries = zip(weights, copy.borrowed(), strict=True)
    places = [(p, p.data, elsewhere) for p, elsewhere in entries if elsewhere is not None]
    leaving = [p for p, _, _ in places]
    try:
        for p, _, elsewhere in places:
            p.data = elsewhere
        increment_version(leaving)  # a graph that was built at x_t would now see other weights
        yield Lent(weights, copy)
    finally:
        with marked("restore"):
            for p, home, _ in places:
                p.data = home
            increment_version(leaving)


@contextmanager
def _in_place(copy: Vector, weights: Weights) -> Iterator[Weights]:
    """Write the copy over the weights after the block."""
    try:
        yield weights
    finally:
        with torch.no_grad(), marked("restore"):
            copy_(weights, copy.borrowed())


def _may_leave(weights: Weights) -> bool:
    """Whether nobody but the parameters themselves knows where their memory is."""
    moving = [p for p in weights if p.requires_grad]
    is_plain = set(map(type, moving)) <= {nn.Parameter, Tensor}
    return is_plain and all(p.is_cpu for p in moving) and are_alone(moving)
