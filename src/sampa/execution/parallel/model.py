"""The model of one rank, in the wrapper that its exchange of gradients needs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NoReturn, Self

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from sampa.execution.compiler import outside_of_graphs
from sampa.execution.parallel.groups import Groups
from sampa.execution.parallel.statistics import SharedStatistics


class BranchModel(nn.Module):
    """A model that brings the branches' BatchNorm statistics together before evaluation."""

    _statistics: SharedStatistics
    module: nn.Module

    def train(self, mode: bool = True) -> Self:
        if not mode:
            self._statistics.sync()
        return super().train(mode)

    def __getstate__(self) -> NoReturn:
        refuse_to_copy()


class ReducedModel(BranchModel, DistributedDataParallel):
    """Hands gradients to an exchange while backward runs, through DDP's reducer."""

    def __init__(
        self,
        model: nn.Module,
        statistics: SharedStatistics,
        *,
        bucket_mb: float,
        find_unused: bool,
    ) -> None:
        super().__init__(
            model,
            find_unused_parameters=find_unused,
            gradient_as_bucket_view=True,
            bucket_cap_mb=bucket_mb,
            **_no_buffer_sync(),
        )
        self._statistics = statistics


class PlainModel(BranchModel):
    """Leaves its gradients to an exchange that takes them after backward."""

    def __init__(
        self, model: nn.Module, statistics: SharedStatistics, note_call: Callable[[], None]
    ) -> None:
        super().__init__()
        self.module = model
        self._statistics = statistics
        self._note_call = note_call

    def forward(self, *inputs: Any, **named: Any) -> Any:
        _call_outside_of_graphs(self._note_call)
        return self.module(*inputs, **named)

    def no_sync(self) -> AbstractContextManager[None]:
        return nullcontext()


@outside_of_graphs
def _call_outside_of_graphs(function: Callable[[], None]) -> None:
    function()


def refuse_to_copy() -> NoReturn:
    """Say why a copy of live processes cannot be."""
    raise TypeError(
        "an executor on several ranks cannot be copied or pickled: its processes are live; "
        "save optimizer.state_dict() and model.state_dict() instead"
    )


def confine_to_branch(model: nn.Module, groups: Groups) -> None:
    """Let SyncBatchNorm normalize over its own branch: the others are at other weights."""
    if groups.branches > 1:
        for module in model.modules():
            if isinstance(module, nn.SyncBatchNorm) and module.process_group is None:
                module.process_group = groups.data_group


def _no_buffer_sync() -> dict[str, Any]:
    """DDP's switch for copying buffers at each forward, by the name that this torch knows."""
    parameters = inspect.signature(DistributedDataParallel.__init__).parameters
    name = "forward_sync_buffers" if "forward_sync_buffers" in parameters else "broadcast_buffers"
    return {name: False}
