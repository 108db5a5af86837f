"""Runs in real processes of their own, on one rank or several, that can be killed at any moment."""

from __future__ import annotations

import multiprocessing as mp
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NoReturn

import torch

from sampa.lab.bench.ranks import free_port
from sampa.lab.training import checkpoint
from sampa.lab.training.loop import Trainer
from sampa.lab.training.run import Run
from sampa.lab.training.session import Interrupted
from tests.lab.training.runs import carry_out
from tests.ranks import set_up_rank

_context = mp.get_context("forkserver")  # the one of tests.ranks, with everything loaded


def start(run: Run, out: Path, *, world: int = 1, **options: Any) -> list[BaseProcess]:
    """Start a run on some ranks; see `_main` for the options."""
    port = free_port()
    ranks: list[BaseProcess] = [
        _context.Process(target=_main, args=(rank, world, port, run, out), kwargs=options)
        for rank in range(world)
    ]
    for process in ranks:
        process.start()
    return ranks


def exit_codes(ranks: Sequence[BaseProcess], timeout: float = 90) -> list[int]:
    """How each rank ended; negative for a signal. A rank that hangs fails the test."""
    for process in ranks:
        process.join(timeout)
    hanging = [rank for rank, process in enumerate(ranks) if process.is_alive()]
    for rank in hanging:
        ranks[rank].kill()
        ranks[rank].join()
    assert not hanging, f"ranks {hanging} did not end within {timeout} s"
    return [process.exitcode or 0 for process in ranks]


def run_ranks(run: Run, out: Path, **options: Any) -> list[int]:
    return exit_codes(start(run, out, **options))


def _main(
    rank: int,
    world: int,
    port: int,
    run: Run,
    out: Path,
    *,
    kill: tuple[int, ...] = (),
    at: str = "",
    time: int = 1,
    with_signal: int = signal.SIGKILL,
    **settings: Any,
) -> None:
    """One rank.

    Args:
        kill: Which ranks send themselves a signal ...
        at: ... when they come to this point, a named instant of `checkpoint` or "batch 4" ...
        time: ... for the n-th time.
        with_signal: That signal.
        settings: Of the run.
    """
    set_up_rank(rank, world, port)
    if rank in kill:
        seen: list[str] = []

        def signal_at(point: str) -> None:
            seen.append(point)
            if point == at and seen.count(at) == time:
                os.kill(os.getpid(), with_signal)

        call_at_points(signal_at)
    carry_out_and_exit(run, out, **settings)


def carry_out_and_exit(run: Run, out: Path, **settings: Any) -> NoReturn:
    """The whole life of a rank; its exit code is that of the command."""
    try:
        carry_out(run, out, **settings)
        code = 0
    except Interrupted as stopped:
        code = 128 + stopped.signal_number
    except BaseException:
        traceback.print_exc()
        code = 1
    if code != 1 and torch.distributed.is_initialized():
        with suppress(RuntimeError):
            torch.distributed.barrier()  # who leaves first would break off what others exchange
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def call_at_points(callback: Callable[[str], None]) -> None:
    """Call back at each named instant of saving and before each batch, in this process for good."""
    checkpoint.on_point = callback
    original = Trainer.batch

    def batch(self: Trainer, position: int) -> Any:
        callback(f"batch {position}")
        return original(self, position)

    Trainer.batch = batch
