"""Leaving x_t for a probe, and coming back to it bit for bit.

The weights are moved in place, because whoever knows their memory (a view, a compiled graph, a
sharded layer) must see the move, and come back by copy. Subtracting the move again would be no way
back: it rounds, and replicas would drift apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from sampa.execution.profiling import MOVE, RESTORE
from sampa.method import Move
from sampa.vectors.vector import Vector, Weights, copy_


class Excursions:
    """Takes the weights elsewhere and back.

    Attributes:
        copies: How many copies of the weights were alive at once; 0 if they never left.
    """

    def __init__(self) -> None:
        self.copies = 0
        self._alive = 0

    @contextmanager
    def to(self, move: Move | None, weights: Weights) -> Iterator[None]:
        """Hold the weights where `move` takes them inside the block, at x_t after it."""
        if move is None:
            yield
            return
        home = Vector(p.detach() if p.requires_grad else None for p in weights).clone()
        self._alive += 1
        self.copies = max(self.copies, self._alive)
        try:
            with torch.no_grad(), MOVE:
                move(weights)
            yield
        finally:
            with torch.no_grad(), RESTORE:
                copy_(weights, home)
            self._alive -= 1
            torch.clear_autocast_cache()  # cast copies of the moved weights
