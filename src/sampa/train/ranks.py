"""The few collectives that a training loop needs; in one process they are the identity."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch import Tensor


def is_distributed() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def rank() -> int:
    return dist.get_rank() if is_distributed() else int(os.environ.get("RANK", "0"))


def world_size() -> int:
    return dist.get_world_size() if is_distributed() else int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Whether this process writes files and talks to the terminal."""
    return rank() == 0


def any_rank(flag: bool) -> bool:
    """Whether the flag is set on some rank; the same answer everywhere."""
    if not is_distributed():
        return flag
    flags = _reachable(torch.tensor([float(flag)]))
    dist.all_reduce(flags, op=dist.ReduceOp.MAX)
    return bool(flags.item())


def sum_over_ranks(values: Tensor) -> Tensor:
    """The sum of a small tensor over all ranks."""
    if not is_distributed():
        return values
    sums = _reachable(values)
    dist.all_reduce(sums)
    return sums.to(values.device)


def _reachable(values: Tensor) -> Tensor:
    """The tensor where the ranks can exchange it: NCCL only knows the GPU."""
    return values.cuda() if dist.get_backend() == "nccl" else values


def wait_for_all() -> None:
    if is_distributed():
        dist.barrier()
