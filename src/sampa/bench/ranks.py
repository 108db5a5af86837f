"""Processes for a benchmark: started anew, one thread and one core each, with a result of each."""

from __future__ import annotations

import datetime
import multiprocessing
import os
import socket
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar

import torch

from sampa.execution.collectives import open_mesh
from sampa.heap import keep_freed_memory

Result = TypeVar("Result")


def on_ranks(function: Callable[..., Result], ranks: int, *arguments: Any) -> list[Result]:
    """`function(rank, ranks, device, *arguments)` on so many processes that can talk.

    Raises:
        Exception: What the first of them that failed raised.
    """
    port = free_port()
    with ProcessPoolExecutor(ranks, multiprocessing.get_context("spawn")) as pool:
        running = [
            pool.submit(_run, rank, ranks, port, function, arguments) for rank in range(ranks)
        ]
        return [each.result() for each in running]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _run(
    rank: int, ranks: int, port: int, function: Callable[..., Result], arguments: tuple[Any, ...]
) -> Result:
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(ranks),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
    )
    torch.set_num_threads(1)
    keep_freed_memory()
    pin_to_core(rank)
    device = torch.device("cuda", rank) if torch.cuda.is_available() else torch.device("cpu")
    if ranks > 1:
        open_mesh(device, 1, datetime.timedelta(minutes=5))
    return function(rank, ranks, device, *arguments)


def pin_to_core(rank: int) -> None:
    """One core for each rank, where there are enough and the system lets us choose."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[rank % len(cores)]})
