"""The exchange of gradients through memory that the ranks of one machine share.

Each rank has a row. It writes its gradient into it when the others have read its last one (they
did, a backward pass ago), and reads theirs when they have written: two copies and one short wait.
"""

from __future__ import annotations

import enum
from itertools import compress
from operator import is_

import torch
from torch import Tensor

from sampa.execution.evaluate import Evaluator
from sampa.execution.parallel.exchange import (
    Names,
    Sharing,
    gradient_stride,
    require_called,
    require_complete,
)
from sampa.execution.parallel.groups import Groups
from sampa.execution.parallel.shared_memory import SharedMemory
from sampa.vectors.vector import Vector, Weights, copy_


class Place(enum.IntEnum):
    """What a rank shows the others beside its gradient."""

    WRITTEN = 0  # how many gradients it has written
    READ = 1  # of how many exchanges it has read the others' gradients
    LOSS = 2
    BATCH = 3  # its mark


class SharedMemoryExchange:
    """Gathers over branches on one machine; there are no data ranks to average over."""

    def __init__(
        self, groups: Groups, memory: SharedMemory, names: Names, *, use_varies: bool
    ) -> None:
        self._groups = groups
        self._memory = memory
        self._names = names
        self._use_varies = use_varies
        self._rows = Rows(memory.rows)
        self._loss = torch.zeros(())
        self._losses: list[Tensor] = []
        self._mark = 0.0
        self._marks: list[float] = []
        self._was_called = False

    def begin(self, sharing: Sharing, mark: float = 0.0) -> None:
        self._was_called = False
        self._mark = mark

    def note_call(self) -> None:
        """The model was called: this rank takes part."""
        self._was_called = True

    def announce(self, loss: Tensor) -> None:
        self._loss = loss.detach()

    def losses(self, branches: int) -> list[Tensor]:
        return self._losses[:branches]

    def marks(self) -> list[list[float]]:
        return [[mark] for mark in self._marks]

    def collect(self, evaluator: Evaluator, branches: int) -> list[Vector]:
        require_called(self._was_called)
        own, weights = evaluator.taken(), evaluator.weights
        if not self._use_varies:
            unused = [p for p, g in zip(weights, own, strict=True) if p.requires_grad and g is None]
            require_complete(self._names, unused)
        written = self._write(own, weights)
        patterns = self._patterns(own.pattern)[:branches]
        self._memory.wait(Place.WRITTEN, written)
        self._losses = [self._loss.new_tensor(x) for x in self._memory.read(Place.LOSS)]
        self._marks = self._memory.read(Place.BATCH)
        vectors = [
            own if branch == self._groups.branch else self._rows.read(branch, weights, pattern)
            for branch, pattern in enumerate(patterns)
        ]
        self._memory.advance(Place.READ)
        return vectors

    def _write(self, v: Vector, weights: Weights) -> int:
        """Show the gradient and the loss to the others; how many have been shown with it."""
        if len({t.dtype for t in v.present}) > 1:
            raise RuntimeError(
                "gradients of different kinds cannot travel through shared memory; use "
                "sampa.distribute(model, shared_memory=False)"
            )
        count = self._memory.count(Place.WRITTEN)
        self._memory.wait(Place.READ, count)  # the gradient that is in the row now
        self._memory.post(Place.LOSS, self._loss.item())
        self._memory.post(Place.BATCH, self._mark)
        others = self._groups.branches - 1
        self._groups.traffic.header_bytes += 16 * others
        self._groups.traffic.gradient_bytes += sum(t.nbytes for t in v.present) * others
        copy_(self._rows.entries(self._groups.branch, weights, v.pattern), v.present)
        return self._memory.advance(Place.WRITTEN)

    def _patterns(self, pattern: tuple[bool, ...]) -> list[tuple[bool, ...]]:
        """Which entries each branch's gradient has."""
        if not self._use_varies:
            return [pattern] * self._groups.branches
        rows, work = self._groups.gather_headers(torch.tensor(pattern, dtype=torch.uint8))
        self._groups.wait(work)
        return [tuple(row) for row in rows[:, 0].bool().tolist()]


class Rows:
    """The gradient of each branch, as parameter-shaped parts of its row of bytes."""

    def __init__(self, rows: list[Tensor]) -> None:
        self._rows = rows
        # Cutting a row into hundreds of parts takes longer than copying a gradient into it.
        self._parts: dict[tuple[int, tuple[bool, ...]], tuple[list[Tensor], list[Tensor]]] = {}

    def entries(self, branch: int, weights: Weights, pattern: tuple[bool, ...]) -> list[Tensor]:
        """The parts of a row for the parameters of a pattern, one after the other."""
        like = list(compress(weights, pattern))
        key = branch, pattern
        if key not in self._parts or not all(map(is_, self._parts[key][0], like)):
            flat = self._rows[branch][: sum(p.nbytes for p in like)]
            parts = flat.view(like[0].dtype).split([p.numel() for p in like]) if like else ()
            shaped = [
                part.as_strided(p.shape, gradient_stride(p))
                for part, p in zip(parts, like, strict=True)
            ]
            self._parts[key] = like, shaped
        return self._parts[key][1]

    def read(self, branch: int, weights: Weights, pattern: tuple[bool, ...]) -> Vector:
        """A copy of a branch's gradient: the next exchange overwrites the row."""
        copies = iter([part.clone() for part in self.entries(branch, weights, pattern)])
        return Vector(next(copies) if present else None for present in pattern)
