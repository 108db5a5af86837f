"""`sampa.distribute`: the executor that fits the processes at hand."""

from __future__ import annotations

from torch import nn

from sampa.execution.executor import Executor, launched_world_size
from sampa.execution.parallel.executor import Parallel
from sampa.execution.parallel.groups import is_distributed
from sampa.execution.serial import Serial
from sampa.execution.wrapped import require_bare
from sampa.messages import require


def distribute(
    model: nn.Module,
    branches: int = 2,
    *,
    find_unused_parameters: bool = False,
    bucket_mb: float | None = None,
    timeout: float = 300,
    check_every: int = 100,
    shared_memory: bool = True,
) -> Executor:
    """Prepare a model for sharpness-aware training on the processes at hand.

    In plain python the result is serial. Under torchrun the ranks form a mesh branch × data.

    Args:
        model: The bare model, on its device, not in DistributedDataParallel or sharded. Rank 0's
            weights are copied to all ranks.
        branches: How many probes of a round run at once; 2 for SAMPa. 1 is plain data parallel,
            which is what methods with one probe per round (SAM) want.
        find_unused_parameters: Needed if some parameters take no part in some passes.
        bucket_mb: Size of the pieces in which gradients are exchanged over a network while backward
            runs; None chooses it from the model's size.
        timeout: Seconds after which a rank gives up on the others. A process group that was opened
            before keeps its own.
        check_every: Compare weights and batches between ranks at the first exchange, and once in
            this many rounds.
        shared_memory: Let branches on the CPUs of one machine exchange gradients through memory
            that they share; the result is the same.

    Examples:
        >>> import torch
        >>> model = torch.nn.Linear(2, 1)
        >>> executor = distribute(model)
        >>> base = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> executor.mesh is None  # plain python
        True
    """
    require_bare("sampa.distribute", model)
    require("branches", branches, branches >= 1, ">= 1")
    require("bucket_mb", bucket_mb, bucket_mb is None or bucket_mb > 0, "> 0 or None")
    require("timeout", timeout, timeout > 0, "> 0")
    require("check_every", check_every, check_every >= 1, ">= 1")
    if launched_world_size() == 1 and not is_distributed():
        return Serial(model)
    return Parallel(
        model,
        branches,
        find_unused_parameters=find_unused_parameters,
        bucket_mb=bucket_mb,
        timeout=timeout,
        check_every=check_every,
        shared_memory=shared_memory,
    )
