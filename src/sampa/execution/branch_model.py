"""The model of one rank, wrapped in DDP for its reducer and its hooks into backward."""

from __future__ import annotations

import inspect
from typing import Any, NoReturn

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from sampa.execution.collectives import Groups
from sampa.execution.statistics import SharedStatistics


class BranchModel(DistributedDataParallel):
    """DDP that brings the branches' BatchNorm statistics together before evaluation."""

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

    def train(self, mode: bool = True) -> BranchModel:
        if not mode:
            self._statistics.sync()
        return super().train(mode)

    def __getstate__(self) -> NoReturn:
        refuse_to_copy()


def refuse_to_copy() -> NoReturn:
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
