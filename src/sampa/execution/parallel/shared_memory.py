"""Memory that the ranks of one machine share, so that a gradient is copied and never sent."""

from __future__ import annotations

import datetime
import mmap
import os
import platform
import secrets
import select
import tempfile
import time
from pathlib import Path

import torch
from torch import Tensor

from sampa.execution.parallel.groups import Groups, everyone

FOLDER = Path("/dev/shm")  # files there live in memory
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
    if platform.machine() not in ORDERED_STORES or not FOLDER.is_dir():
        return None
    token = secrets.token_bytes(TOKEN)
    descriptor, path = tempfile.mkstemp(prefix="sampa-", dir=FOLDER)
    try:
        # Reserved now: writing into memory that is not there would kill the process.
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
