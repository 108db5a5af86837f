"""The exchange of gradients through memory that the ranks of one machine share.

Each rank has a row. It writes its gradient into it when the others have read its last one (they
did, a backward pass ago), and reads theirs when they have written: two copies and one short wait.
Nothing is sent.
"""

from __future__ import annotations

import datetime
import enum
import mmap
import os
import platform
import secrets
import select
import tempfile
import time
from itertools import compress
from operator import is_
from pathlib import Path

import torch
from torch import Tensor

from sampa.execution.evaluate import Evaluator
from sampa.execution.parallel.agreement import BatchMark, UnusedMark
from sampa.execution.parallel.exchange import (
    ParameterNames,
    Sharing,
    gradient_stride,
    refuse_uncalled,
)
from sampa.execution.parallel.groups import Groups, everyone
from sampa.vectors.vector import Vector, Weights, clones, copy_

MEMORY_FOLDER = Path("/dev/shm")  # files there live in memory
ORDERED_STORES = ("x86_64", "AMD64")  # processors that show others their stores in order
TOKEN = 64  # bytes by which a rank knows that it opened the right file
BOARD = 64  # bytes for each rank's counters, on a cache line of their own
PATIENCE = 1000  # looks before a waiting rank goes to sleep between them


class SharedMemory:
    """A row of bytes and a few counters for each rank; all can read them, each writes its own.

    A rank that waits sees within a fraction of a second if another has died.
    """

    def __init__(
        self, memory: mmap.mmap, groups: Groups, pids: list[int], timeout: datetime.timedelta
    ) -> None:
        ranks = len(pids)
        boards = memoryview(memory)[TOKEN : TOKEN + BOARD * ranks]
        rows = torch.frombuffer(memory, dtype=torch.uint8, offset=TOKEN + BOARD * ranks)
        self.rows: list[Tensor] = list(rows.view(ranks, -1))
        self._groups = groups
        self._counters = boards.cast("q")
        self._numbers = boards.cast("d")
        self._others = _Watch([pid for rank, pid in enumerate(pids) if rank != groups.branch])
        self._timeout = timeout.total_seconds()

    def post(self, place: int, number: float) -> None:
        """Let the others see a number of this rank."""
        self._numbers[self._groups.branch * BOARD // 8 + place] = number

    def read(self, place: int) -> list[float]:
        """That number of every rank."""
        return list(self._numbers[place :: BOARD // 8])

    def count(self, place: int) -> int:
        """A counter of this rank."""
        return self._counters[self._groups.branch * BOARD // 8 + place]

    def advance(self, place: int) -> int:
        """Add one to a counter of this rank, and return it."""
        self._counters[self._groups.branch * BOARD // 8 + place] += 1
        return self.count(place)

    def wait(self, place: int, count: int) -> None:
        """Wait until that counter has reached `count` on every rank.

        Raises:
            RuntimeError: If a rank has died, or is silent for longer than the timeout.
        """
        looks, deadline = 0, time.monotonic() + self._timeout
        while min(self._counters[place :: BOARD // 8]) < count:
            looks += 1
            if looks < PATIENCE:
                continue
            if self._others.is_one_gone() or time.monotonic() > deadline:
                if min(self._counters[place :: BOARD // 8]) >= count:
                    return  # it did its part before it left
                raise self._groups.lost()
            time.sleep(1e-4)


class _Watch:
    """Knows when one of some processes has ended, where the system can tell."""

    def __init__(self, pids: list[int]) -> None:
        self._poll = select.poll()
        for pid in pids:
            try:
                self._poll.register(os.pidfd_open(pid), select.POLLIN)
            except (AttributeError, OSError):  # another system, or out of sight in a container
                continue

    def is_one_gone(self) -> bool:
        return bool(self._poll.poll(0))


def open_shared_memory(
    groups: Groups, size: int, timeout: datetime.timedelta
) -> SharedMemory | None:
    """A row of `size` bytes for each branch; every rank calls it.

    The file has a name only until all ranks have opened it: nothing is left behind, unless the
    first rank is killed in that moment.

    Returns:
        None on every rank if they are on several machines, if there is not enough memory, or if
        their processors may show a counter before the numbers that were written before it.
    """
    ranks = groups.branches
    size += -size % BOARD  # every row is aligned
    created = _create(TOKEN + ranks * (BOARD + size)) if groups.branch == 0 else None
    try:
        offered = everyone(created)[0]
        memory = None if offered is None else _opened(*offered)
        pids = everyone(os.getpid() if memory is not None else None)
    finally:
        if created is not None:
            os.unlink(created[0])
    if memory is None or None in pids:
        return None
    return SharedMemory(memory, groups, pids, timeout)


def _create(size: int) -> tuple[str, bytes] | None:
    """A file of that size, and the secret at its start."""
    if platform.machine() not in ORDERED_STORES or not MEMORY_FOLDER.is_dir():
        return None
    token = secrets.token_bytes(TOKEN)
    descriptor, path = tempfile.mkstemp(prefix="sampa-", dir=MEMORY_FOLDER)
    try:
        # Reserved now: writing into memory that cannot be had would kill the process.
        os.posix_fallocate(descriptor, 0, size)
        os.pwrite(descriptor, token, 0)
    except OSError:
        os.unlink(path)
        return None
    finally:
        os.close(descriptor)
    return path, token


def _opened(path: str, token: bytes) -> mmap.mmap | None:
    """The file in this rank's memory; None on another machine, where it is not to be found."""
    try:
        with open(path, "r+b") as file:
            memory = mmap.mmap(file.fileno(), 0)
    except OSError:
        return None
    return memory if memory[:TOKEN] == token else None


class Slot(enum.IntEnum):
    """What a rank shows the others beside its gradient."""

    WRITTEN = 0  # how many gradients it has written
    READ = 1  # of how many exchanges it has read the others' gradients
    LOSS = 2
    BATCH = 3  # its mark


class SharedMemoryExchange:
    """Gathers over branches on one machine; there are no data ranks to average over."""

    def __init__(
        self, groups: Groups, memory: SharedMemory, names: ParameterNames, *, use_varies: bool
    ) -> None:
        self._groups = groups
        self._memory = memory
        self._names = names
        self._use_varies = use_varies
        self._rows = Rows(memory.rows)
        self._loss = torch.zeros(())
        self._losses: list[Tensor] = []
        self._marks = torch.zeros(0)
        self._was_called = False

    def begin(self, sharing: Sharing) -> None:
        self._was_called = False

    def note_call(self) -> None:
        """The model was called: this rank takes part."""
        self._was_called = True

    def announce(self, loss: Tensor, mark: BatchMark | None = None) -> None:
        self._loss = loss.detach()

    def losses(self, branches: int) -> list[Tensor]:
        return self._losses[:branches]

    def marks(self) -> Tensor:
        return self._marks

    def close(self) -> None:
        pass

    def collect(
        self, evaluator: Evaluator, branches: int, mark: BatchMark | None = None
    ) -> list[Vector]:
        if not self._was_called:
            refuse_uncalled()
        own, weights = evaluator.taken(), evaluator.weights
        unused = {p for p, g in zip(weights, own, strict=True) if p.requires_grad and g is None}
        if unused and not self._use_varies:
            # The others wait for this rank: it takes part, and tells all what is wrong.
            mark = UnusedMark(self._names, unused)
            entries = zip(weights, own, strict=True)
            own = Vector(torch.zeros_like(p) if p in unused else g for p, g in entries)
        written = self._write(own, weights, mark)
        patterns = self._patterns(own.pattern)[:branches]
        self._memory.wait(Slot.WRITTEN, written)
        self._losses = [self._loss.new_tensor(x) for x in self._memory.read(Slot.LOSS)]
        self._marks = torch.tensor(self._memory.read(Slot.BATCH), dtype=torch.float64)[:, None]
        vectors = [
            own if branch == self._groups.branch else self._rows.read(branch, weights, pattern)
            for branch, pattern in enumerate(patterns)
        ]
        self._memory.advance(Slot.READ)
        return vectors

    def _write(self, v: Vector, weights: Weights, mark: BatchMark | None) -> int:
        """Show the gradient and the loss to the others; how many have been shown with it."""
        if len({t.dtype for t in v.present}) > 1:
            raise RuntimeError(
                "gradients of different kinds cannot travel through shared memory; use "
                "sampa.distribute(model, shared_memory=False)"
            )
        count = self._memory.count(Slot.WRITTEN)
        self._memory.wait(Slot.READ, count)  # the gradient that is in the row now
        self._memory.post(Slot.LOSS, self._loss.item())
        if mark is not None:
            self._memory.post(Slot.BATCH, mark.value(self._loss).item())
        others = self._groups.branches - 1
        self._groups.traffic.header_bytes += 16 * others
        self._groups.traffic.gradient_bytes += sum(t.nbytes for t in v.present) * others
        copy_(self._rows.entries(self._groups.branch, weights, v.pattern), v.present)
        return self._memory.advance(Slot.WRITTEN)

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
        copies = iter(clones(self.entries(branch, weights, pattern)))
        return Vector(next(copies) if present else None for present in pattern)
