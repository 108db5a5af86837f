"""The only file that talks to torch.distributed: groups, gathers, agreement, clean errors."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

# torch 2.13 renamed all_gather_into_tensor; torch 2.10 to 2.12 only know the older name.
_all_gather: Callable[..., Any] = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)


@dataclass
class Traffic:
    """Bytes that this rank sent since the counters were last reset.

    A gather sends this rank's part to each other member; a reduction is counted as the ring
    algorithm's 2 (n − 1) / n of the buffer.
    """

    gradient_bytes: int = 0
    header_bytes: int = 0


@dataclass
class Groups:
    """The process groups of a branch × data mesh, and what was sent through them."""

    mesh: DeviceMesh
    traffic: Traffic = field(default_factory=Traffic)

    def __post_init__(self) -> None:
        self.branch_group = self.mesh.get_group("branch")
        self.data_group = self.mesh.get_group("data")
        self.branches: int = self.mesh.size(0)
        self.data_ranks: int = self.mesh.size(1)
        self.branch: int = self.mesh.get_local_rank("branch")
        self.data_rank: int = self.mesh.get_local_rank("data")

    def gather_branches(self, buffer: Tensor) -> tuple[Tensor, dist.Work]:
        """Start gathering `buffer` of every branch, one row each."""
        rows = buffer.new_empty(self.branches * buffer.numel())
        self.traffic.gradient_bytes += buffer.nbytes * (self.branches - 1)
        work = _all_gather(rows, buffer, group=self.branch_group, async_op=True)
        return rows.view(self.branches, -1), work

    def average_over_data(self, buffer: Tensor) -> dist.Work:
        """Start averaging `buffer` over the data ranks of this branch, in place."""
        buffer.div_(self.data_ranks)
        sent = 2 * (self.data_ranks - 1) * buffer.nbytes // self.data_ranks
        self.traffic.gradient_bytes += sent
        work = dist.all_reduce(buffer, group=self.data_group, async_op=True)
        assert work is not None
        return work

    def gather_headers(self, header: Tensor) -> tuple[Tensor, dist.Work]:
        """Start gathering one small tensor from every rank: shape (branches, data ranks, ...)."""
        world = self.branches * self.data_ranks
        rows = header.new_empty(world * header.numel())
        self.traffic.header_bytes += header.nbytes * (world - 1)
        work = _all_gather(rows, header, async_op=True)
        return rows.view(self.branches, self.data_ranks, -1), work

    def broadcast(self, tensors: list[Tensor], branch: int) -> None:
        """Copy the tensors of a branch's first data rank to all ranks."""
        source = int(self.mesh.mesh[branch, 0])
        for tensor in tensors:
            dist.broadcast(tensor, src=source)


def open_mesh(device: torch.device, branches: int, timeout: datetime.timedelta) -> DeviceMesh:
    """Join the other ranks (unless that was done already) and lay them out as branch × data.

    Raises:
        ValueError: If the ranks cannot be divided into branches.
    """
    if not dist.is_initialized():
        backend = "nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, timeout=timeout)
    world = dist.get_world_size()
    if branches < 1 or world % branches:
        raise ValueError(
            f"branches must divide the number of processes, got branches={branches} and {world} "
            f"processes; start with torchrun --nproc-per-node {max(branches, 1)} (or a multiple), "
            "or pass another value of branches"
        )
    mesh = init_device_mesh(
        device.type, (branches, world // branches), mesh_dim_names=("branch", "data")
    )
    for name in ("branch", "data"):
        # A mesh's groups take torch's default of 30 minutes otherwise.
        dist.distributed_c10d._set_pg_timeout(timeout, mesh.get_group(name))
    return mesh


def everyone(value: Any) -> list[Any]:
    """The value of every rank; for set-up, never inside a step."""
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def require_same_model(model: nn.Module) -> None:
    """Tell all ranks if their models differ, before gradients of different shapes meet.

    Raises:
        RuntimeError: Naming the first difference and the ranks.
    """
    descriptions = everyone(
        [
            (name, tuple(t.shape), str(t.dtype), t.requires_grad)
            for name, t in [*model.named_parameters(), *model.named_buffers()]
        ]
    )
    require_same("model", [dict(enumerate(d)) for d in descriptions])


def require_same_settings(settings: dict[str, Any]) -> None:
    """Tell all ranks if their optimizers were built differently."""
    require_same("optimizer", everyone(settings))


def require_same(what: str, described: list[dict[Any, Any]]) -> None:
    """Raise on every rank if a rank's description differs from that of rank 0."""
    for rank, theirs in enumerate(described):
        for key in [*described[0], *theirs]:
            ours, other = described[0].get(key), theirs.get(key)
            if ours != other:
                raise RuntimeError(
                    f"the {what} differs between ranks: rank 0 has {key!s}: {ours}, "
                    f"rank {rank} has {key!s}: {other}; build it the same way on every rank"
                )
