"""Memory that the ranks of one machine share, so that a gradient is copied and never sent."""

from __future__ import annotations

import mmap
import os
import secrets
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from sampa.execution.collectives import everyone

FOLDER = Path("/dev/shm")  # files there live in memory
TOKEN = 64  # bytes by which a rank knows that it opened the right file; rows begin after it


def open_rows(rank: int, rows: int, size: int) -> list[Tensor] | None:
    """One row of `size` bytes for each rank, which all can read; every rank calls it.

    The file has a name only until all ranks have opened it: nothing is left behind, however they
    end.

    Returns:
        None on every rank if they are on several machines, or if there is not enough memory.
    """
    size += -size % TOKEN  # rows of any type are aligned
    token, path = everyone(_create(TOKEN + rows * size) if rank == 0 else None)[0]
    memory = None if path is None else _attempt(lambda: _map(path))
    agrees = memory is not None and memory[:TOKEN] == token
    all_agree = all(everyone(agrees))
    if rank == 0 and path is not None:
        os.unlink(path)
    if memory is None or not all_agree:
        return None
    return list(torch.frombuffer(memory, dtype=torch.uint8, offset=TOKEN).view(rows, size))


def _create(size: int) -> tuple[bytes, str | None]:
    """A file of that size with a secret at its start, or None."""
    token = secrets.token_bytes(TOKEN)
    if not FOLDER.is_dir():
        return token, None
    descriptor, path = tempfile.mkstemp(prefix="sampa-", dir=FOLDER)
    try:
        # Reserved now: writing into memory that is not there would kill the process.
        os.posix_fallocate(descriptor, 0, size)
        os.pwrite(descriptor, token, 0)
    except OSError:
        os.unlink(path)
        return token, None
    finally:
        os.close(descriptor)
    return token, path


def _map(path: str) -> mmap.mmap:
    with open(path, "r+b") as file:
        return mmap.mmap(file.fileno(), 0)


def _attempt(function: Callable[[], mmap.mmap]) -> mmap.mmap | None:
    """A rank on another machine does not find the file."""
    try:
        return function()
    except OSError:
        return None
