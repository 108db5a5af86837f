"""Processes for a benchmark: started anew, one thread and one core each, with a result of each."""

from __future__ import annotations

import datetime
import multiprocessing
import os
import socket
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait
from typing import Any, TypeVar

import torch

from sampa.execution.parallel.groups import open_mesh
from sampa.lab.heap import keep_freed_memory
from sampa.messages import require

Result = TypeVar("Result")


def on_ranks(function: Callable[..., Result], ranks: int, *arguments: Any) -> list[Result]:
    """`function(rank, ranks, device, *arguments)` on so many processes that can talk.

    Raises:
        ValueError: If there are GPUs, but too few.
        Exception: What the first of them that failed raised; the others are ended.
    """
    gpus = torch.cuda.device_count()
    require("ranks", ranks, gpus == 0 or ranks <= gpus, f"<= {gpus}, the number of GPUs")
    port, before = free_port(), set(multiprocessing.active_children())
    with ProcessPoolExecutor(ranks, multiprocessing.get_context("spawn")) as pool:
        running = [
            pool.submit(_run, rank, ranks, port, function, arguments) for rank in range(ranks)
        ]
        failed = [f for f in wait(running, return_when=FIRST_EXCEPTION).done if f.exception()]
        if failed:
            for waiting in set(multiprocessing.active_children()) - before:
                waiting.terminate()
            failed[0].result()
        return [each.result() for each in running]


def free_port() -> int:
    """A port of this machine that nobody uses."""
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
