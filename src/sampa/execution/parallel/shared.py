"""The exchange of gradients through memory that the ranks of one machine share.

Each rank has a row. It writes its gradient there when the others have read its last one (they did,
a backward pass ago), and reads theirs when they have written: two copies and one short wait.
"""

from __future__ import annotations

import enum

import torch
from torch import Tensor

from sampa.execution.evaluate import Evaluator
from sampa.execution.parallel.exchange import Names, require_called, require_complete
from sampa.execution.parallel.groups import Groups
from sampa.execution.parallel.shared_memory import SharedMemory
from sampa.vectors.packing import Packing, Pattern
from sampa.vectors.vector import Vector, Weights


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
        self._loss = torch.zeros(())
        self._losses: list[Tensor] = []
        self._mark = 0.0
        self._marks: list[float] = []
        self._gathers = self._was_called = False

    def begin(self, *, gathers: bool, averages: bool, mark: float = 0.0) -> None:
        self._gathers, self._was_called = gathers, False
        self._mark = mark

    def note_call(self) -> None:
        """The model was called: this rank takes part."""
        self._was_called = True

    @property
    def is_wanted(self) -> bool:
        return self._gathers

    def announce(self, loss: Tensor) -> None:
        self._loss = loss.detach()

    def losses(self, branches: int) -> list[Tensor]:
        return self._losses[:branches]

    def marks(self) -> list[list[float]]:
        return [[mark] for mark in self._marks]

    def collect(self, evaluator: Evaluator, branches: int) -> list[Vector]:
        require_called(self._was_called)
        own = evaluator.taken()
        if not self._use_varies:
            require_complete(self._names, _trainable_without(evaluator.weights, own.pattern))
        written = self._write(own)
        patterns = self._patterns(own.pattern)[:branches]
        self._memory.wait(Place.WRITTEN, written)
        self._losses = [self._loss.new_tensor(x) for x in self._memory.read(Place.LOSS)]
        self._marks = self._memory.read(Place.BATCH)
        vectors = [self._read(i, pattern, evaluator.packing) for i, pattern in enumerate(patterns)]
        self._memory.advance(Place.READ)
        return [own if v is None else v for v in vectors]

    def _write(self, v: Vector) -> int:
        """Show the gradient and the loss to the others; how many have been shown with it."""
        if v.flat is None and any(v.pattern):
            raise RuntimeError(
                "gradients of different kinds cannot travel through shared memory; use "
                "sampa.distribute(model, shared_memory=False)"
            )
        count = self._memory.count(Place.WRITTEN)
        self._memory.wait(Place.READ, count)  # what is there now
        self._memory.post(Place.LOSS, self._loss.item())
        self._memory.post(Place.BATCH, self._mark)
        self._groups.traffic.header_bytes += 16 * (self._groups.branches - 1)
        if v.flat is not None:
            self._groups.traffic.gradient_bytes += v.flat.nbytes * (self._groups.branches - 1)
            self._row(self._groups.branch, v.flat.dtype)[: v.flat.numel()].copy_(v.flat)
        return self._memory.advance(Place.WRITTEN)

    def _patterns(self, pattern: Pattern) -> list[Pattern]:
        """Which entries each branch's gradient has."""
        if not self._use_varies:
            return [pattern] * self._groups.branches
        rows, work = self._groups.gather_headers(torch.tensor(pattern, dtype=torch.uint8))
        self._groups.wait(work)
        return [tuple(row) for row in rows[:, 0].bool().tolist()]

    def _read(self, branch: int, pattern: Pattern, packing: Packing) -> Vector | None:
        """Another branch's gradient; None for this one's."""
        if branch == self._groups.branch:
            return None
        layout = packing.layout(pattern)
        if layout is None:
            return Vector([None] * len(pattern))
        buffer = layout.take()
        buffer.flat.copy_(self._row(branch, layout.dtype)[: layout.size])
        return Vector.packed(buffer)

    def _row(self, branch: int, dtype: torch.dtype) -> Tensor:
        return self._memory.rows[branch].view(dtype)


def _trainable_without(weights: Weights, pattern: Pattern) -> list[Tensor]:
    pairs = zip(weights, pattern, strict=True)
    return [p for p, there in pairs if p.requires_grad and not there]
