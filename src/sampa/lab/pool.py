"""A pool of processes that end with this one, and leave Ctrl-C to it."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from sampa.lab.children import follow_parent, without_ctrl_c

Result = TypeVar("Result")


@contextmanager
def started(
    function: Callable[..., Result], calls: Iterable[tuple[Any, ...]], workers: int
) -> Iterator[list[Future[Result]]]:
    """Calls of a function, at work in processes that are started anew.

    If the block is left by an error, of theirs or by Ctrl-C, the processes are ended at once.
    """
    before, spawn = set(multiprocessing.active_children()), multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, spawn, follow_parent, (os.getpid(),)) as pool:
        try:
            with without_ctrl_c():
                running = [pool.submit(function, *arguments) for arguments in calls]
            yield running
        except BaseException:  # or else the pool waits for the others
            pool.shutdown(wait=False, cancel_futures=True)
            for waiting in set(multiprocessing.active_children()) - before:
                waiting.terminate()
            raise
