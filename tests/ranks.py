"""Run a function on several real processes that talk over gloo.

A fork server with torch loaded starts a rank in a few milliseconds instead of seconds.
"""

from __future__ import annotations

import io
import multiprocessing as mp
import os
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import forkserver
from typing import Any

import torch

from sampa.lab.bench.ranks import free_port

_context = mp.get_context("forkserver")
_context.set_forkserver_preload(["tests.preload"])


def start_server() -> None:
    """Start the fork server now, with the environment that all ranks are to have."""
    forkserver.ensure_running()


def run_ranks(
    world: int, function: Callable[..., Any], *args: Any, timeout: float = 120
) -> list[Any]:
    """The results of `function(*args)` on every rank; raises if a rank failed or hung."""
    outcomes = collect_ranks(world, function, *args, timeout=timeout)
    failures = [f"rank {r}: {o}" for r, o in enumerate(outcomes) if isinstance(o, Failure)]
    if failures:
        raise RuntimeError("\n".join(failures))
    return outcomes


class Failure(str):
    """What a rank that did not return had to say."""


def collect_ranks(
    world: int, function: Callable[..., Any], *args: Any, timeout: float = 120
) -> list[Any]:
    """The result of every rank, or the Failure in its place."""
    port = free_port()
    pipes, processes = [], []
    for rank in range(world):
        receiver, sender = _context.Pipe(duplex=False)
        process = _context.Process(
            target=_rank_main, args=(rank, world, port, sender, function, args), daemon=True
        )
        process.start()
        sender.close()
        pipes.append(receiver)
        processes.append(process)
    outcomes = [_receive(pipe, timeout) for pipe in pipes]
    for process in processes:
        process.join(5)
        if process.is_alive():
            process.kill()
            process.join()
    return outcomes


def _receive(pipe: Any, timeout: float) -> Any:
    if not pipe.poll(timeout):
        return Failure(f"no answer within {timeout} s")
    try:
        return torch.load(io.BytesIO(pipe.recv_bytes()), weights_only=False)
    except EOFError:
        return Failure("died without a word")


def _rank_main(
    rank: int, world: int, port: int, sender: Any, function: Callable[..., Any], args: Any
) -> None:
    set_up_rank(rank, world, port)
    try:
        outcome = function(*args)
    except BaseException:
        outcome = Failure(traceback.format_exc())
    buffer = io.BytesIO()
    torch.save(outcome, buffer)
    sender.send_bytes(buffer.getvalue())
    sender.close()
    if not isinstance(outcome, Failure):
        _leave_together()
    os._exit(0)


def set_up_rank(rank: int, world: int, port: int) -> None:
    """What a launcher tells a rank; one thread; and warnings are errors, as pytest has them."""
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}


def _leave_together() -> None:
    """Wait for the other ranks: whoever leaves first would break off what they still exchange."""
    if torch.distributed.is_initialized():
        with suppress(RuntimeError):  # another rank failed, and says so itself
            torch.distributed.barrier()
