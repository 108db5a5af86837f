"""Process groups and what ranks say to each other through them, with clean errors."""

from __future__ import annotations

import atexit
import datetime
import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from sampa.messages import require

DIMENSIONS = ("branch", "data")
"""Of every mesh: probes at the same time, and shards of a batch."""


@dataclass
class Traffic:
    """Bytes that this rank sent since the counters were last reset.

    A gather sends this rank's part to each other member; a reduction is counted as the ring
    algorithm's 2 (n − 1) / n of the buffer.

    Attributes:
        gradient_bytes: Gradients.
        header_bytes: Losses, fingerprints of batches, and which parameters took part where that may
            vary.
        check_bytes: Fingerprints of weights, sent once in many rounds.
    """

    gradient_bytes: int = 0
    header_bytes: int = 0
    check_bytes: int = 0


@dataclass
class Groups:
    """The process groups of a branch × data mesh, and what was sent through them."""

    mesh: DeviceMesh
    traffic: Traffic = field(default_factory=Traffic)
    step: int = 0  # the call of optimizer.step that the ranks are in, for messages

    def __post_init__(self) -> None:
        self.branch_group = self.mesh.get_group("branch")
        self.data_group = self.mesh.get_group("data")
        self.branches: int = self.mesh.size(0)
        self.data_ranks: int = self.mesh.size(1)
        self.world = self.branches * self.data_ranks
        self.branch: int = self.mesh.get_local_rank("branch")
        self.data_rank: int = self.mesh.get_local_rank("data")

    def gather_branches(self, parts: Sequence[Sequence[Tensor]], tag: int) -> list[dist.Work]:
        """Start sending this branch's row of each part to all others, and receiving theirs.

        An all-gather would do, but it needs memory for one's own row a second time.
        """
        ranks = dist.get_process_group_ranks(self.branch_group)
        make = partial(dist.P2POp, group=self.branch_group, tag=tag)
        sends: list[dist.P2POp] = []
        receives: list[dist.P2POp] = []
        for rows in parts:
            own = rows[self.branch]
            self.traffic.gradient_bytes += own.nbytes * (self.branches - 1)
            for branch, (rank, theirs) in enumerate(zip(ranks, rows, strict=True)):
                if branch != self.branch:
                    sends.append(make(dist.isend, own, rank))
                    receives.append(make(dist.irecv, theirs, rank))
        with self.talking():
            # Gloo tells the other side that it may send by a message in the same stream: behind
            # one's own row, both directions would take turns, which takes twice as long.
            return dist.batch_isend_irecv([*receives, *sends]) if sends else []

    def average_over_data(self, buffer: Tensor) -> dist.Work:
        """Start averaging `buffer` over the data ranks of this branch, in place."""
        buffer.div_(self.data_ranks)
        sent = 2 * (self.data_ranks - 1) * buffer.nbytes // self.data_ranks
        self.traffic.gradient_bytes += sent
        with self.talking():
            work = dist.all_reduce(buffer, group=self.data_group, async_op=True)
        assert work is not None
        return work

    def gather_headers(self, header: Tensor) -> tuple[Tensor, dist.Work]:
        """Start gathering one small tensor from every rank: shape (branches, data ranks, ...)."""
        self.traffic.header_bytes += header.nbytes * (self.world - 1)
        rows = header.new_empty(self.branches, self.data_ranks, header.numel())
        return rows, self._gather(rows.view(-1), header)

    def gather_checks(self, check: Tensor) -> Tensor:
        """Gather one small tensor from every rank and wait: shape (branches, data ranks, ...)."""
        self.traffic.check_bytes += check.nbytes * (self.world - 1)
        rows = check.new_empty(self.branches, self.data_ranks, check.numel())
        self.wait(self._gather(rows.view(-1), check))
        return rows

    def gather_over_data(self, numbers: Tensor) -> Tensor:
        """The same numbers of all data ranks of this branch, one row each; waits for them."""
        self.traffic.header_bytes += numbers.nbytes * (self.data_ranks - 1)
        rows = numbers.new_empty(self.data_ranks, numbers.numel())
        self.wait(self._gather(rows.view(-1), numbers, self.data_group))
        return rows

    def broadcast_branch(self, shard: Tensor) -> None:
        """Copy branch 0's shard to the ranks of the other branches that hold the same one."""
        source = int(self.mesh.mesh[0, self.data_rank])
        with self.talking():
            dist.broadcast(shard, src=source, group=self.branch_group)

    def broadcast(self, tensors: list[Tensor], branch: int) -> None:
        """Copy the tensors of a branch's first data rank to all ranks."""
        source = int(self.mesh.mesh[branch, 0])
        with self.talking():
            for tensor in tensors:
                dist.broadcast(tensor, src=source)

    def wait(self, work: dist.Work | torch.futures.Future[Any]) -> None:
        """Wait until an exchange is complete."""
        with self.talking():
            work.wait()

    @contextmanager
    def talking(self) -> Iterator[None]:
        """Say who was left alone when an exchange fails."""
        try:
            yield
        except RuntimeError as error:
            raise self.lost() from error

    def lost(self) -> RuntimeError:
        """What to raise when the other ranks cannot be reached."""
        return RuntimeError(
            f"rank {dist.get_rank()} (branch {self.branch}, data {self.data_rank}), step "
            f"{self.step}: lost the other ranks: one of them stopped, made another number of "
            "steps, or was silent for longer than the timeout of sampa.distribute; look for the "
            "first error in the output of the others"
        )

    def _gather(
        self, rows: Tensor, part: Tensor, group: dist.ProcessGroup | None = None
    ) -> dist.Work:
        # torch 2.13 renamed the function; torch 2.10 to 2.12 only know the older name.
        renamed = hasattr(dist, "all_gather_single")
        gather = dist.all_gather_single if renamed else dist.all_gather_into_tensor
        with self.talking():
            work = gather(rows, part, group=group, async_op=True)
        assert work is not None
        return work


def is_distributed() -> bool:
    """Whether this process has joined others already."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def open_mesh(device: torch.device, branches: int, timeout: datetime.timedelta) -> DeviceMesh:
    """Join the other ranks (unless that was done already) and lay them out as branch × data.

    Raises:
        ValueError: If the ranks cannot be divided into branches.
    """
    require("branches", branches, branches >= 1, ">= 1")
    if device.type != "cpu":
        torch.accelerator.set_device_index(device)  # Python objects travel by the current device
    if not dist.is_initialized():
        _join(device, timeout)
    require_same("call of sampa.distribute", everyone({"branches": branches}))
    world = dist.get_world_size()
    if world % branches:
        raise ValueError(
            f"branches must divide the number of processes, got branches={branches} and {world} "
            f"processes; start with torchrun --nproc-per-node {branches} (or a multiple), or pass "
            "another value of branches"
        )
    ranks = torch.arange(world).view(branches, -1)
    # init_device_mesh would give its groups torch's default timeout, 30 minutes.
    groups: list[Any] = [
        dist.new_subgroups_by_enumeration(members.tolist(), timeout=timeout)[0]
        for members in (ranks.T, ranks)
    ]
    return DeviceMesh.from_group(groups, device.type, mesh=ranks, mesh_dim_names=DIMENSIONS)


def _join(device: torch.device, timeout: datetime.timedelta) -> None:
    _stay_on_this_machine()
    if device.type == "cpu":
        _require_an_address()
    options: dict[str, Any] = {"timeout": timeout}
    if "RANK" not in os.environ:  # plain python: a group of one
        options |= {"store": dist.HashStore(), "rank": 0, "world_size": 1}
    store = _local_store(timeout)
    if store is not None:
        rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        options |= {"store": store, "rank": rank, "world_size": world}
    if device.type != "cpu":
        options["device_id"] = device
    dist.init_process_group(dist.get_default_backend_for_device(device), **options)
    atexit.register(_leave)


def _local_store(timeout: datetime.timedelta) -> dist.TCPStore | None:
    """Where ranks of one machine meet, open to it alone: torch's own store listens everywhere.

    None where a launcher has a store already, or the ranks meet elsewhere.
    """
    has_store = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if has_store or os.environ.get("MASTER_ADDR") not in ("127.0.0.1", "localhost"):
        return None
    port, is_first = int(os.environ["MASTER_PORT"]), os.environ["RANK"] == "0"
    listener = socket.create_server(("127.0.0.1", port)).detach() if is_first else None
    return dist.TCPStore(
        "127.0.0.1",
        port,
        int(os.environ["WORLD_SIZE"]),
        is_master=is_first,
        timeout=timeout,
        master_listen_fd=listener,
    )


def _leave() -> None:
    """Close what `_join` opened (NCCL complains otherwise), unless the program ends in an error.

    After an error the other ranks may be waiting for this one: a hard exit is what ends them.
    """
    failed = getattr(sys, "last_value", None) is not None
    if dist.is_initialized() and not failed:
        dist.destroy_process_group()


def _stay_on_this_machine() -> None:
    """Let gloo listen on the loopback interface only, if that is where the ranks meet."""
    if os.environ.get("MASTER_ADDR") in ("127.0.0.1", "localhost", "::1"):
        loopback = [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")]
        if loopback:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback[0])


def _require_an_address() -> None:
    """Refuse to start on several machines where gloo would tell the others a loopback address.

    Raises:
        RuntimeError: Naming the variable that chooses the interface.
    """
    local = os.environ.get("LOCAL_WORLD_SIZE", os.environ.get("WORLD_SIZE", "1"))
    if os.environ.get("WORLD_SIZE", "1") == local or "GLOO_SOCKET_IFNAME" in os.environ:
        return
    name = socket.gethostname()
    with suppress(OSError):  # a name that cannot be resolved is gloo's own error
        address = socket.gethostbyname(name)
        if address.startswith("127."):
            interfaces = ", ".join(name for _, name in socket.if_nameindex())
            raise RuntimeError(
                f"ranks on other machines cannot reach this one: its host name {name!r} resolves "
                f"to {address}, which is what gloo would tell them; set GLOO_SOCKET_IFNAME to the "
                f"interface that joins the machines (here: {interfaces}), or mend /etc/hosts"
            )


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
            (name, tuple(t.shape), t.stride(), str(t.dtype), t.requires_grad)
            for name, t in [*model.named_parameters(), *model.named_buffers()]
        ]
    )
    require_same("model", [dict(enumerate(d)) for d in descriptions])


def require_same_parameters(
    model: nn.Module, weights: Sequence[Tensor], settings: Mapping[str, Any] | None = None
) -> None:
    """Tell all ranks if their optimizers train different parameters, or have different settings.

    Raises:
        ValueError: If some trained parameter is not one of the model's.
        RuntimeError: Naming the first difference and the ranks.
    """
    names: dict[Tensor, str] = {p: name for name, p in model.named_parameters()}
    trained = {f"parameter {i}": names.get(p) for i, p in enumerate(weights) if p.requires_grad}
    for rank, theirs in enumerate(everyone(trained)):
        strangers = [key for key, name in theirs.items() if name is None]
        if strangers:
            raise ValueError(
                "every trained parameter must belong to the distributed model, got "
                f"{len(strangers)} others on rank {rank} (the first is {strangers[0]} of the "
                "optimizer); their gradients would not be exchanged: put them in the module "
                "that is passed to distribute"
            )
    require_same("optimizer", everyone({**trained, **(settings or {})}))


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
