"""Processes for a benchmark: started anew, one thread and one core each, with a result of each."""

from __future__ import annotations

import datetime
import itertools
import os
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, wait
from contextlib import suppress
from typing import Any, TypeVar

import torch

from sampa.execution.parallel.groups import open_mesh
from sampa.lab.bench.workloads import Bench, Workload
from sampa.lab.heap import keep_freed_memory
from sampa.lab.pool import started

PORTS = range(10_000, 32_000)  # below those of outgoing connections, by most systems' defaults
RANKS = 2  # of a step of SAMPa: one for each of its gradients
Result = TypeVar("Result")

_calls = itertools.count()


def on_ranks(
    function: Callable[..., Result],
    devices: Sequence[torch.device],
    workload: Workload,
    *arguments: Any,
) -> list[Result]:
    """The results of `function(bench, *arguments)`, on a rank that can talk for each device.

    Raises:
        Exception: What the first of them that failed raised; the others are ended.
    """
    port, ranks = free_port(), len(devices)
    benches = [Bench(workload, device, rank, ranks) for rank, device in enumerate(devices)]
    calls = [(function, bench, port, *arguments) for bench in benches]
    with started(_run, calls, ranks) as running:
        failed = [f for f in wait(running, return_when=FIRST_EXCEPTION).done if f.exception()]
        if failed:
            failed[0].result()
        return [each.result() for each in running]


def free_port() -> int:
    """A port of this machine that is not in use, and another one at each call.

    By its defaults the system gives none of these to an outgoing connection, which could take the
    port before the first rank listens on it. Each process begins at another one.

    Raises:
        OSError: If no port can be had.
    """
    begin = os.getpid() * 61
    for _ in PORTS:
        port = PORTS[(begin + next(_calls)) % len(PORTS)]
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("", port))  # all addresses, as a launcher's store may want them
            return port
    raise OSError(f"a port in {PORTS} must be free for ranks to meet at, and none could be bound")


def _run(function: Callable[..., Result], bench: Bench, port: int, *arguments: Any) -> Result:
    os.environ.update(
        RANK=str(bench.rank),
        LOCAL_RANK=str(bench.rank),
        WORLD_SIZE=str(bench.ranks),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
    )
    torch.set_num_threads(1)
    keep_freed_memory()
    if hasattr(os, "sched_setaffinity"):  # one core for each rank, where there are enough
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[bench.rank % len(cores)]})
    if bench.ranks > 1:
        open_mesh(bench.device, 1, datetime.timedelta(minutes=5))
    return function(bench, *arguments)
