"""The exchange of gradients through memory that the ranks of one machine share.

Each rank has a row. It writes its gradient there once the others have read its last one, and reads
theirs once they have written: two moments at which all meet. The first is the exchange of losses,
which overlaps with backward; so only two copies and one meeting are exposed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sampa.execution.collectives import Groups
from sampa.execution.evaluate import Evaluator
from sampa.execution.exchange import Names, SharedLosses, require_called, require_complete
from sampa.packing import Packing, Pattern
from sampa.vectors import Vector, Weights


class SharedMemoryExchange:
    """Gathers over branches on one machine; there are no data ranks to average over."""

    def __init__(
        self, groups: Groups, rows: list[Tensor], names: Names, *, use_varies: bool
    ) -> None:
        self._groups = groups
        self._rows = rows
        self._names = names
        self._use_varies = use_varies
        self._losses = SharedLosses(groups)
        self._gathers = False
        self._was_called = False

    def begin(self, *, gathers: bool, averages: bool) -> None:
        self._gathers, self._was_called = gathers, False

    def note_call(self) -> None:
        """The model was called: this rank takes part."""
        self._was_called = True

    @property
    def is_wanted(self) -> bool:
        return self._gathers

    def announce(self, loss: Tensor) -> None:
        self._losses.announce(loss)

    def losses(self, branches: int) -> list[Tensor]:
        return self._losses.wait(branches)

    def collect(self, evaluator: Evaluator, branches: int) -> list[Vector]:
        require_called(self._was_called)
        own = evaluator.taken()
        if not self._use_varies:
            require_complete(self._names, _trainable_without(evaluator.weights, own.pattern))
        self._losses.wait(branches)  # all have read what was here before
        self._write(own)
        patterns = self._meet(own.pattern)[:branches]
        vectors = [self._read(i, pattern, evaluator.packing) for i, pattern in enumerate(patterns)]
        return [own if v is None else v for v in vectors]

    def _meet(self, pattern: Pattern) -> list[Pattern]:
        """Wait until all have written; which entries each branch's gradient has."""
        if not self._use_varies:
            self._groups.meet()
            return [pattern] * self._groups.branches
        rows, work = self._groups.gather_headers(torch.tensor(pattern, dtype=torch.uint8))
        self._groups.wait(work)
        return [tuple(row) for row in rows[:, 0].bool().tolist()]

    def _write(self, v: Vector) -> None:
        if v.flat is None:
            return
        self._groups.traffic.gradient_bytes += v.flat.nbytes * (self._groups.branches - 1)
        self._row(self._groups.branch, v.flat.dtype)[: v.flat.numel()].copy_(v.flat)

    def _read(self, branch: int, pattern: Pattern, packing: Packing) -> Vector | None:
        """Another branch's gradient; None for this one's."""
        if branch == self._groups.branch:
            return None
        layout = packing.layout(pattern)
        if layout is None:
            return Vector([None] * len(pattern))
        return Vector.packed(self._row(branch, layout.dtype)[: layout.size].clone(), layout)

    def _row(self, branch: int, dtype: torch.dtype) -> Tensor:
        return self._rows[branch].view(dtype)


def _trainable_without(weights: Weights, pattern: Pattern) -> list[Tensor]:
    pairs = zip(weights, pattern, strict=True)
    return [p for p, there in pairs if p.requires_grad and not there]
