"""What is opened before the first step: the way that gradients travel, and the model for it."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sampa.execution.parallel.exchange import Exchange, ParameterNames
from sampa.execution.parallel.groups import Groups
from sampa.execution.parallel.model import PlainModel, SharedStatistics
from sampa.execution.parallel.network import NetworkExchange
from sampa.execution.parallel.reduced import ReducedModel
from sampa.execution.parallel.shared_memory import (
    SharedMemory,
    SharedMemoryExchange,
    open_shared_memory,
)


@dataclass(frozen=True)
class RouteOptions:
    """What `sampa.distribute` was told about the exchange."""

    use_varies: bool
    bucket_mb: float | None
    timeout: datetime.timedelta
    shared_memory: bool
    exchange_dtype: torch.dtype | None


@dataclass(frozen=True)
class Route:
    """Opens an exchange for the parameters of a model that are trained at that time."""

    groups: Groups
    model: nn.Module
    statistics: SharedStatistics
    names: ParameterNames
    options: RouteOptions

    @property
    def keeps_its_buckets(self) -> bool:
        """Whether the first exchange gives the bits of all later ones."""
        return self.options.use_varies or self.groups.data_ranks < 3

    def open(self) -> tuple[Exchange, PlainModel | ReducedModel]:
        """The exchange, and the model in the wrapper that it needs, with rank 0's weights."""
        self.copy([*self.model.parameters(), *self.model.buffers()])
        memory = self._shared_memory() if self.options.shared_memory else None
        if memory is not None:
            shared = self._through(memory)
            return shared, PlainModel(self.model, self.statistics, shared.note_call)
        return self._over_network()

    def open_again(self, exchange: Exchange, model: PlainModel | ReducedModel) -> Exchange:
        """An exchange for what is trained now, on the way of the one before, for the same model.

        Raises:
            RuntimeError: If it cannot be, on every rank.
        """
        if not any(p.requires_grad for p in self.model.parameters()):
            raise RuntimeError(
                "at least one parameter of the distributed model must be trained, got none that "
                "requires a gradient; leave out optimizer.step while all of them are frozen"
            )
        exchange.close()
        if isinstance(model, ReducedModel):
            network, fresh = self._over_network()
            model.take_over(fresh)
            return network
        memory = self._shared_memory()
        if memory is None:
            raise RuntimeError(
                "the gradients of the parameters that are trained now cannot travel through shared "
                "memory: they are of different dtypes, or there is not enough of it; use "
                "sampa.distribute(model, shared_memory=False)"
            )
        shared = self._through(memory)
        model.note_call = shared.note_call
        return shared

    def copy(self, tensors: Iterable[Tensor]) -> None:
        """Rank 0's values to all ranks."""
        # DDP does it for its own, and for buffers only since torch 2.13.
        self.groups.broadcast([t.detach() for t in tensors], branch=0)

    def _over_network(self) -> tuple[NetworkExchange, ReducedModel]:
        use_varies, bucket_mb = self.options.use_varies, self.options.bucket_mb
        network = NetworkExchange(
            self.groups, self.names, use_varies=use_varies, dtype=self.options.exchange_dtype
        )
        reduced = ReducedModel(
            self.model, self.statistics, bucket_mb=bucket_mb, find_unused=use_varies
        )
        reduced.register_comm_hook(None, network.hook)
        return network, reduced

    def _through(self, memory: SharedMemory) -> SharedMemoryExchange:
        use_varies = self.options.use_varies
        return SharedMemoryExchange(self.groups, memory, self.names, use_varies=use_varies)

    def _shared_memory(self) -> SharedMemory | None:
        """Memory for the gradients of all branches, if all ranks are branches of one machine."""
        trained = [p for p in self.model.parameters() if p.requires_grad]
        on_cpu = all(p.device.type == "cpu" for p in trained)
        dtypes = {p.dtype for p in trained}
        fits = on_cpu and len(dtypes) == 1 and all(dtype.is_floating_point for dtype in dtypes)
        if self.groups.data_ranks > 1 or not fits:
            return None
        return open_shared_memory(self.groups, sum(p.nbytes for p in trained), self.options.timeout)


def device_of(model: nn.Module) -> torch.device:
    """The device of a model that can be distributed.

    Raises:
        ValueError: If the model is on several devices, or has complex parameters.
    """
    devices = {p.device for p in model.parameters()}
    if len(devices) != 1:
        raise ValueError(
            f"a distributed model must be on one device per rank, got {sorted(map(str, devices))}; "
            "move it with model.to(device) before distribute"
        )
    left = [name for name, b in model.named_buffers() if b.device not in devices]
    if left:
        raise ValueError(
            f"a distributed model must be on one device per rank, got parameters on "
            f"{min(map(str, devices))} and {len(left)} buffer(s) elsewhere (the first is "
            f"{left[0]!r}); move them with model.to(device) before distribute, and register them "
            "with register_buffer"
        )
    if any(p.is_complex() for p in model.parameters()):
        raise ValueError(
            "a distributed model must have real parameters, got complex ones, whose gradients "
            "are not exchanged; keep torch.view_as_real(...) of them as parameters"
        )
    return devices.pop()
