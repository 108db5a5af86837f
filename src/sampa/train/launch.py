"""Start the ranks of a run on this machine through torch's elastic launcher."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from sampa.checks import require
from sampa.execution.executor import launched_world_size


def is_launched() -> bool:
    """Whether this process is already one of several (torchrun, or `launch` below)."""
    return launched_world_size() > 1


def launch(devices: int, arguments: Sequence[str], max_restarts: int = 0) -> int:
    """Run `sampa <arguments>` on `devices` processes and wait for them.

    Returns:
        The exit code: 0, or that of the first rank that failed.
    """
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    require("devices", devices, devices >= 1, ">= 1")
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=devices,
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        local_addr="127.0.0.1",
        max_restarts=max_restarts,
        monitor_interval=0.1,
    )
    try:
        elastic_launch(config, sys.executable)("-m", "sampa", *arguments)
    except ChildFailedError as error:
        first = min(error.failures.values(), key=lambda failure: failure.timestamp)
        return first.exitcode if first.exitcode > 0 else 128 - first.exitcode
    return 0
