"""Start the ranks of a run on this machine through torch's elastic launcher."""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from sampa.execution.executor import launched_world_size
from sampa.lab.children import children_follow
from sampa.lab.heap import keep_freed_memory
from sampa.lab.terminal import SAID, say
from sampa.messages import require

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure


def is_launched() -> bool:
    """Whether this process is already one of several (torchrun, or `launch` below)."""
    return launched_world_size() > 1


def set_up_process(threads: int | None = None) -> None:
    """Give a process that trains its share of the cores, and let it keep memory that it frees.

    An even share, unless OMP_NUM_THREADS says another number. Sums depend on it, so run.json
    records it.
    """
    keep_freed_memory()
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    share = max(1, (os.cpu_count() or 1) // local)
    torch.set_num_threads(threads or int(os.environ.get("OMP_NUM_THREADS") or share))


def launch(devices: int, arguments: Sequence[str], max_restarts: int = 0) -> int:
    """Run `sampa <arguments>` on `devices` processes and wait for them.

    Returns:
        The exit code: 0, or that of the first rank that failed; 128 + n for signal n.
    """
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    require("devices", devices, devices >= 1, ">= 1")
    _quiet_launcher()
    # The ranks make a store of their own, open to this machine alone. A shared one listens
    # everywhere, and keeps the addresses of dead ranks: pytorch/pytorch#135712.
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    try:
        with tempfile.TemporaryDirectory(prefix="sampa-launch-") as folder:
            config = LaunchConfig(
                run_id=f"sampa-{os.getpid()}",
                min_nodes=1,
                max_nodes=1,
                nproc_per_node=devices,
                rdzv_backend="c10d",
                rdzv_endpoint=f"{folder}/store",
                rdzv_configs={"store_type": "file"},
                local_addr="127.0.0.1",
                max_restarts=max_restarts,
                monitor_interval=0.1,
            )
            with children_follow(), _told_once(folder):
                elastic_launch(config, sys.executable)("-m", "sampa", *arguments)
    except SignalException as error:  # its ranks were told, and have saved
        return 128 + int(error.sigval)
    except ChildFailedError as error:
        return _exit_code(list(error.failures.values()))
    return 0


@contextmanager
def _told_once(folder: str) -> Iterator[None]:
    """Have ranks started meanwhile tell an error that all of them have once."""
    os.environ[SAID] = folder
    try:
        yield
    finally:
        del os.environ[SAID]


def _exit_code(failures: Sequence[ProcessFailure]) -> int:
    """That of the rank that failed first.

    A rank that fails takes the others with it within the same second: the launcher ends them with
    SIGTERM, or they fail because they lost it. So a kill counts before an error, and SIGTERM last.
    """
    ended = -signal.SIGTERM
    first = min(failures, key=lambda f: (f.timestamp, f.exitcode == ended, f.exitcode > 0))
    if first.exitcode > 0:
        return first.exitcode
    say(
        f"rank {first.local_rank} was killed by signal {-first.exitcode}; the same command with "
        "--resume goes on from the last checkpoint",
        file=sys.stderr,
    )
    return 128 - first.exitcode


def _quiet_launcher() -> None:
    """Leave the talking to the ranks; each of the launcher's loggers has a level of its own."""
    for name in list(logging.root.manager.loggerDict):
        if name.startswith("torch.distributed.elastic"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
