"""Models that are sharded by `fully_shard`: each data rank of a branch holds a part of the weights.

FSDP2 gathers the weights for each layer and scatters the averaged gradient, within a branch. What
is left to do is the exchange between branches: of this rank's own shard alone, while backward is
still at work on earlier layers.

FSDP keeps gathered weights after a forward pass without backward (of the root, or of all layers
with `reshard_after_forward=False`), and those do not see a move of the shards. So they are dropped
before each probe and after each way back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from sampa.execution.evaluate import Evaluator
from sampa.execution.lookahead import clear_gradients
from sampa.execution.parallel.agreement import BatchMark, UnusedMark
from sampa.execution.parallel.exchange import ParameterNames, Sharing, travelling
from sampa.execution.parallel.groups import Groups, everyone
from sampa.execution.parallel.model import PlainModel, SharedStatistics
from sampa.execution.parallel.network import GatheredLosses
from sampa.execution.parallel.reduced import MB, chosen_bucket_mb
from sampa.execution.parallel.route import RouteOptions
from sampa.execution.wrapped import sharded_modules
from sampa.vectors.vector import Vector, is_sharded, local


class ShardedModel(PlainModel):
    """Lets FSDP share gradients within the branch, and leaves those of the last pass to us."""

    def __init__(
        self,
        model: nn.Module,
        statistics: SharedStatistics,
        without_exchange: Callable[[], AbstractContextManager[None]],
    ) -> None:
        super().__init__(model, statistics, note_call=lambda: None)
        self.without_exchange = without_exchange

    def no_sync(self) -> AbstractContextManager[None]:
        return self.without_exchange()


class ShardExchange:
    """Gives every branch's gradient to the others, shard by shard, in a fixed order."""

    def __init__(
        self,
        groups: Groups,
        names: ParameterNames,
        *,
        use_varies: bool,
        bucket_bytes: float,
        dtype: torch.dtype | None,
    ) -> None:
        self._groups = groups
        self._names = names
        self._use_varies = use_varies
        self._dtype = dtype
        self._trained = [p for p in names if p.requires_grad]
        self._losses = GatheredLosses(groups)
        self._loss = torch.zeros(())
        self._sharing = Sharing.NOTHING
        self._listens = True
        self._buckets = list(_buckets(self._trained, bucket_bytes))
        self._ready: set[Tensor] = set()
        self._started = 0
        self._rows: list[dict[Tensor, Tensor]] = []  # of each branch
        self._gathering: list[dist.Work] = []
        # FSDP calls them as autograd does, when it has scattered a gradient.
        self._hooks = [p.register_post_accumulate_grad_hook(self._note) for p in self._trained]

    def begin(self, sharing: Sharing) -> None:
        self._sharing = sharing
        self._ready.clear()
        self._started = 0
        self._rows = [{} for _ in range(self._groups.branches)]
        self._gathering = []

    def announce(self, loss: Tensor, mark: BatchMark | None = None) -> None:
        self._loss = loss
        if Sharing.GATHER not in self._sharing:
            self._losses.announce(loss, mark)

    def collect(
        self, evaluator: Evaluator, branches: int, mark: BatchMark | None = None
    ) -> list[Vector]:
        if Sharing.GATHER not in self._sharing:
            return [evaluator.taken()]
        used = [p.grad is not None for p in self._trained]
        unused = {p for p in self._trained if p.requires_grad and p.grad is None}
        if unused and not self._use_varies:
            # The others wait for this rank: it takes part, and tells all what is wrong.
            mark = UnusedMark(self._names, unused)
        self._losses.announce(self._loss, mark)
        uses = self._gathered_uses(used) if self._use_varies else None
        self._start(flush=True)
        clear_gradients(evaluator.weights)
        for work in self._gathering:
            self._groups.wait(work)
        found = self._rows[:branches]
        if uses is not None:
            for branch, rows in enumerate(found):
                for p, is_used in zip(self._trained, uses[branch].tolist(), strict=True):
                    if not is_used:
                        del rows[p]
        self._rows = []
        return [
            Vector(rows[p].to(p.dtype) if p in rows else None for p in evaluator.weights)
            for rows in found
        ]

    def losses(self, branches: int) -> list[Tensor]:
        return self._losses.wait(branches)

    def marks(self) -> Tensor:
        return self._losses.marks

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave gradients where they are: more will be added to them."""
        self._listens = False
        try:
            yield
        finally:
            self._listens = True

    def _note(self, p: Tensor) -> None:
        if self._listens and Sharing.GATHER in self._sharing:
            self._ready.add(p)
            self._start()

    def _start(self, *, flush: bool = False) -> None:
        """Send the buckets whose turn it is, in the same order on all ranks."""
        while self._started < len(self._buckets):
            bucket = self._buckets[self._started]
            if not flush and not self._ready.issuperset(bucket):
                return
            self._started += 1
            self._gathering += self._send(bucket)

    def _send(self, bucket: list[Tensor]) -> list[dist.Work]:
        parts: list[list[Tensor]] = []
        for p in bucket:
            shard = local([p])[0].detach()
            own = torch.zeros_like(shard) if p.grad is None else local([p.grad])[0]
            own = own.to(travelling(own.dtype, self._dtype))
            row = [torch.empty_like(own) for _ in range(self._groups.branches - 1)]
            row.insert(self._groups.branch, own)
            for rows, t in zip(self._rows, row, strict=True):
                rows[p] = t
            if own.numel():  # the rows of a small parameter may not reach all ranks
                parts.append(row)
        return self._groups.gather_branches(parts, tag=self._started)

    def _gathered_uses(self, used: list[bool]) -> Tensor:
        """Which parameters each branch used: the same ones on its data ranks, as FSDP needs it."""
        device = local(self._trained[:1])[0].device
        own = torch.tensor(used, dtype=torch.uint8, device=device)
        rows, work = self._groups.gather_headers(own)
        self._groups.wait(work)
        return rows.amax(dim=1)


def _buckets(parameters: list[Tensor], most: float) -> Iterator[list[Tensor]]:
    """Parameters in the order in which backward usually reaches them, sent together."""
    bucket: list[Tensor] = []
    for p in reversed(parameters):
        bucket.append(p)
        if sum(t.nbytes for t in local(bucket)) >= most:
            yield bucket
            bucket = []
    if bucket:
        yield bucket


@dataclass(frozen=True)
class ShardRoute:
    """Opens the exchange between branches for a sharded model."""

    groups: Groups
    model: nn.Module
    statistics: SharedStatistics
    names: ParameterNames
    options: RouteOptions

    keeps_its_buckets = True

    def open(self) -> tuple[ShardExchange, ShardedModel]:
        """The exchange, and the model with branch 0's shards and rank 0's buffers."""
        for shard in local(self.model.parameters()):
            self.groups.broadcast_branch(shard.detach())
        self.groups.broadcast(list(self.model.buffers()), branch=0)
        exchange = self._exchange()
        return exchange, ShardedModel(self.model, self.statistics, exchange.paused)

    def open_again(self, exchange: Any, model: Any) -> ShardExchange:
        """An exchange for what is trained now; all ranks call it, before the first step."""
        exchange.close()
        fresh = self._exchange()
        model.without_exchange = fresh.paused
        return fresh

    def copy(self, tensors: Iterable[Tensor]) -> None:
        self.groups.broadcast([t.detach() for t in tensors if not is_sharded(t)], branch=0)

    def _exchange(self) -> ShardExchange:
        size = self.options.bucket_mb or chosen_bucket_mb(self.model)
        return ShardExchange(
            self.groups,
            self.names,
            use_varies=self.options.use_varies,
            bucket_bytes=size * MB,
            dtype=self.options.exchange_dtype,
        )


def is_gathered(model: nn.Module) -> bool:
    """Whether a model is sharded, also if its weights are gathered now and look whole."""
    return any(True for _ in sharded_modules(model))


def reshard(model: nn.Module) -> None:
    """Drop all gathered weights."""
    for module in sharded_modules(model):
        module.reshard()


def require_shards(model: nn.Module, mesh: DeviceMesh) -> None:
    """Refuse a model of which not all trained parameters are row-wise shards over the data ranks.

    Raises:
        ValueError: On every rank, naming the parameter and what to do.
    """
    reshard(model)
    ranks = mesh["data"].mesh.tolist()
    ours = {id(p) for module in sharded_modules(model) for p in module.parameters()}
    named = dict(model.named_parameters())
    planned = {n: TENSOR_PARALLEL for n, p in named.items() if is_sharded(p) and id(p) not in ours}
    faults = {n: _fault(p, ranks, mesh.device_type) for n, p in named.items()}
    wrong = {name: fault for name, fault in faults.items() if fault}
    several = {name: fault for name, fault in wrong.items() if _is_planned(named[name])}
    for theirs in everyone(planned or several or wrong):  # the cause before what follows from it
        for name, fault in theirs.items():
            raise ValueError(
                f"a sharded model must be sharded over the data ranks, got {name!r} {fault}"
            )


def _is_planned(p: Any) -> bool:
    """Whether a parameter is cut along several dimensions of a mesh."""
    return is_sharded(p) and p.device_mesh.ndim > 1


TENSOR_PARALLEL = (
    "as a DTensor that fully_shard did not make: tensor parallel (parallelize_module) is not "
    "supported; leave out the plan, and shard with fully_shard(..., mesh=mesh['data']) alone"
)


def _fault(p: Any, ranks: list[int], device: str) -> str | None:
    """What is wrong with a parameter, and what to do."""
    if not is_sharded(p):
        return (
            "as a plain tensor; call fully_shard on the whole model last, "
            "fully_shard(model, mesh=mesh['data']), and leave out ignored_params"
        )
    if _is_planned(p) or not p.placements[0].is_shard():
        return (
            f"with placements {tuple(map(str, p.placements))} on a mesh of {p.device_mesh.ndim} "
            "dimension(s): tensor parallel and hybrid sharding are not supported; shard it with "
            "fully_shard(..., mesh=mesh['data']) alone"
        )
    if p.device_mesh.mesh.tolist() != ranks:
        return (
            f"on the ranks {p.device_mesh.mesh.tolist()} while the data ranks of this branch are "
            f"{ranks}: gradients of different probes would be averaged; write "
            "fully_shard(..., mesh=mesh['data'])"
        )
    if not p.placements[0].is_shard(0):
        return "cut along another dimension than the first; leave out shard_placement_fn"
    if p.device.type != device:
        return (
            f"on the {p.device.type} while the ranks talk by {device}; leave out CPUOffloadPolicy"
        )
    return None


def refuse_changed_training() -> NoReturn:
    """Say that a sharded model trains the same parameters throughout."""
    raise RuntimeError(
        "a sharded model must train the same parameters from step to step, got others than at the "
        "first one (or other buffers); after a change of requires_grad, of the layers, of their "
        "buffers or of the groups call "
        "sampa.distribute again and build the optimizer with the new executor"
    )
