"""`sampa.distribute`: the executor that fits the processes at hand."""

from __future__ import annotations

import datetime
import os

import torch
from torch import nn

from sampa.execution.executor import DeviceMesh, Executor, launched_world_size
from sampa.execution.parallel.executor import Parallel
from sampa.execution.parallel.groups import DIMENSIONS, is_distributed, open_mesh
from sampa.execution.parallel.route import RouteOptions, device_of
from sampa.execution.serial import Serial
from sampa.execution.wrapped import require_bare
from sampa.messages import require


def distribute(
    model: nn.Module,
    branches: int = 2,
    *,
    mesh: DeviceMesh | None = None,
    find_unused_parameters: bool = False,
    bucket_mb: float | None = None,
    timeout: float = 300,
    check_every: int = 100,
    shared_memory: bool = True,
    exchange_dtype: torch.dtype | None = None,
) -> Executor:
    """Prepare a model for sharpness-aware training on the processes at hand.

    In plain python the result is serial. Under torchrun the ranks form a mesh branch × data.

    Args:
        model: The bare model, on its device, not in DistributedDataParallel. Rank 0's weights are
            copied to all ranks. Or one that was sharded by `fully_shard` over `mesh["data"]`: then
            each shard is branch 0's.
        branches: How many probes of a round run at once; 2 for SAMPa. 1 is plain data parallel,
            which is what methods with one probe per round (SAM) want. A mesh has its own number.
        mesh: From `sampa.mesh`; needed for a sharded model.
        find_unused_parameters: Needed if some parameters take no part in some passes.
        bucket_mb: Size of the pieces in which gradients are exchanged over a network while backward
            runs; None chooses it from the model's size.
        timeout: Seconds after which a rank gives up on the others. A process group that was opened
            before, and a mesh, keep their own.
        check_every: Compare weights and batches between ranks at the first exchange, and once in
            this many rounds.
        shared_memory: Let branches on the CPUs of one machine exchange gradients through memory
            that they share; the result is the same.
        exchange_dtype: `torch.bfloat16` or `torch.float16` rounds gradients on their way between
            branches over a network, for slow links: half the bytes of float32. All ranks use the
            rounded gradients and stay equal, but the result is no longer that of one process.

    Examples:
        >>> import torch
        >>> model = torch.nn.Linear(2, 1)
        >>> executor = distribute(model)
        >>> base = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> executor.mesh is None  # plain python
        True
    """
    require_bare("sampa.distribute", model, sharded=mesh is not None)
    require("branches", branches, branches >= 1, ">= 1")
    require("bucket_mb", bucket_mb, bucket_mb is None or bucket_mb > 0, "> 0 or None")
    require("timeout", timeout, timeout > 0, "> 0")
    require("check_every", check_every, check_every >= 1, ">= 1")
    short = exchange_dtype in (None, torch.bfloat16, torch.float16)
    require("exchange_dtype", exchange_dtype, short, "torch.bfloat16, torch.float16 or None")
    if mesh is None and launched_world_size() == 1 and not is_distributed():
        return Serial(model)
    patience = datetime.timedelta(seconds=timeout)
    device = device_of(model)
    if mesh is None:
        mesh = open_mesh(device, branches, patience)
    names = mesh.mesh_dim_names
    require("mesh", names, names == DIMENSIONS, f"one of sampa.mesh, with dimensions {DIMENSIONS}")
    options = RouteOptions(
        find_unused_parameters, bucket_mb, patience, shared_memory, exchange_dtype
    )
    return Parallel(model, mesh, options, check_every)


def mesh(
    branches: int = 2, *, device: torch.device | str | None = None, timeout: float = 300
) -> DeviceMesh:
    """The processes at hand as a mesh with dimensions ("branch", "data"), to shard a model over.

    `fully_shard(model, mesh=mesh["data"])` gives each data rank of a branch its part of the model,
    and `sampa.distribute(model, mesh=mesh)` an executor for it. In plain python it is a mesh of one
    process, whatever the number of branches.

    Args:
        branches: How many probes of a round run at once; 1 for methods with one probe per round.
        device: Of the model; None takes the accelerator of this process if there is one (by
            `LOCAL_RANK`), else the CPU.
        timeout: Seconds after which a rank gives up on the others.
    """
    require("timeout", timeout, timeout > 0, "> 0")
    if launched_world_size() == 1 and not is_distributed():
        require("branches", branches, branches >= 1, ">= 1")
        branches = 1
    chosen = _own_device() if device is None else torch.device(device)
    return open_mesh(chosen, branches, datetime.timedelta(seconds=timeout))


def _own_device() -> torch.device:
    kind = torch.accelerator.current_accelerator(check_available=True)
    if kind is None:
        return torch.device("cpu")
    return torch.device(kind.type, int(os.environ.get("LOCAL_RANK", "0")))
