"""The model whose gradients travel while backward runs: DDP's reducer, and its buckets' size."""

from __future__ import annotations

import inspect
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from sampa.execution.parallel.model import BranchModel, SharedStatistics

MB = 1 << 20
SMALLEST_BUCKET_MB, LARGEST_BUCKET_MB = 0.5, 25
COMPILERS_LEAST_BUCKET = MB


class ReducedModel(BranchModel, DistributedDataParallel):
    """Hands gradients to an exchange while backward runs, through DDP's reducer."""

    def __init__(
        self,
        model: nn.Module,
        statistics: SharedStatistics,
        *,
        bucket_mb: float | None,
        find_unused: bool,
    ) -> None:
        super().__init__(
            model,
            find_unused_parameters=find_unused,
            gradient_as_bucket_view=True,
            bucket_cap_mb=bucket_mb or chosen_bucket_mb(model),
            **_no_buffer_sync(),
        )
        self._statistics = statistics
        # The reducer has its bound already. torch.compile cuts the graph by this one, and refuses
        # less than its first bucket's 1 MB.
        self.bucket_bytes_cap = max(self.bucket_bytes_cap, COMPILERS_LEAST_BUCKET)

    def take_over(self, fresh: ReducedModel) -> None:
        """Become a model that was made anew: users hold this one, with their hooks and its mode."""
        own = vars(nn.Module())
        vars(self).update({k: v for k, v in vars(fresh).items() if k not in own})


def chosen_bucket_mb(model: nn.Module) -> float:
    """The size of buckets for a model."""
    return bucket_mb_of(sum(p.nbytes for p in model.parameters() if p.requires_grad) / MB)


def bucket_mb_of(gradient_mb: float) -> float:
    """The size of buckets for a gradient: what is sent after backward has ended is one bucket.

    A sixteenth of the gradient, but not so small that the overhead of a message counts, nor larger
    than DDP's own buckets.
    """
    return min(max(gradient_mb / 16, SMALLEST_BUCKET_MB), LARGEST_BUCKET_MB)


def _no_buffer_sync() -> dict[str, Any]:
    """DDP's switch for copying buffers at each forward, by the name that this torch knows."""
    parameters = inspect.signature(DistributedDataParallel.__init__).parameters
    name = "forward_sync_buffers" if "forward_sync_buffers" in parameters else "broadcast_buffers"
    return {name: False}
