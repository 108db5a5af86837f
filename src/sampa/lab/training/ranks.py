"""The few collectives that a training loop needs; in one process they are the identity."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from sampa.execution.parallel.groups import is_distributed

Made = TypeVar("Made")


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
    with _together():
        dist.all_reduce(flags, op=dist.ReduceOp.MAX)
    return bool(flags.item())


def sum_over_ranks(values: Tensor) -> Tensor:
    """The sum of a small tensor over all ranks."""
    if not is_distributed():
        return values
    sums = _reachable(values)
    with _together():
        dist.all_reduce(sums)
    return sums.to(values.device)


def _reachable(values: Tensor) -> Tensor:
    """The tensor where the ranks can exchange it: NCCL only knows the GPU."""
    return values.cuda() if dist.get_backend() == "nccl" else values


def of_first(make: Callable[[], Made]) -> Made:
    """What the first rank makes, on every rank: others may be on machines with other disks.

    Raises:
        Exception: What it raised there, on every rank.
    """
    if not is_distributed():
        return make()
    made: list[Any] = [None]
    if is_first():
        try:
            made = [(make(), None)]
        except Exception as error:
            made = [(None, error)]
    with _together():
        dist.broadcast_object_list(made, src=0)
    value, error = made[0]
    if error is not None:
        raise error
    return value


def wait_for_all() -> None:
    if is_distributed():
        with _together():
            dist.barrier()


def require_same_position(position: int) -> None:
    """Refuse to go on from different checkpoints; on every rank alike.

    Raises:
        RuntimeError: Naming the ranks' positions.
    """
    if not is_distributed():
        return
    places = _reachable(torch.tensor([position]))
    everywhere = [torch.empty_like(places) for _ in range(world_size())]
    with _together():
        dist.all_gather(everywhere, places)
    found = [int(place) for place in everywhere]
    if len(set(found)) > 1:
        raise RuntimeError(
            f"the ranks would resume after different batches, rank by rank {found}: all must read "
            "the same checkpoints; put --out where every rank sees it"
        )


@contextmanager
def _together() -> Iterator[None]:
    """Say what it means when an exchange between ranks fails."""
    try:
        yield
    except RuntimeError as error:
        raise RuntimeError(
            f"lost the other ranks: one of them stopped or was silent for longer than the timeout "
            f"({error}); look for the first error in the output of the others"
        ) from error
