"""The exchange of gradients, inside DDP's communication hook.

torch's reducer buckets the gradients and calls the hook for each bucket while backward still runs,
so all but the last exchange is hidden. Gradients are gathered whole, never summed: every rank then
holds every branch's gradient bit for bit, and λ = 0 is nothing special.
"""

# No deferred annotations here: DDP compares those of its hook with the real types.

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from sampa.execution.collectives import Groups


@dataclass
class Bucket:
    """A flat piece of the gradient on its way to the other ranks."""

    parameters: list[Tensor]
    buffer: Tensor
    averaging: dist.Work | None
    gathering: dist.Work | None = None
    rows: Tensor | None = None  # one row per branch

    def views(self, branch: int) -> dict[Tensor, Tensor]:
        """The gradient of each parameter as computed by `branch`."""
        assert self.rows is not None
        flat, offset, views = self.rows[branch], 0, {}
        for p in self.parameters:
            # DDP lays gradients out with their parameter's strides (channels_last included).
            views[p] = flat.as_strided(p.shape, p.stride(), flat.storage_offset() + offset)
            offset += p.numel()
        return views


class GradientExchange:
    """Averages over data ranks and gathers over branches, bucket by bucket, in a fixed order."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._buckets: list[Bucket] = []
        self._gathers = False
        self._header: tuple[Tensor, dist.Work] | None = None

    def begin(self, *, gathers: bool) -> None:
        """Get ready for one backward pass; `gathers` says if branches answer different probes."""
        self._buckets, self._gathers, self._header = [], gathers, None

    def announce(self, loss: Tensor) -> None:
        """Tell the other ranks the loss; overlaps with backward."""
        self._header = self._groups.gather_headers(loss.detach().double().reshape(1))

    def hook(self, _state: None, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        """DDP's communication hook. It never blocks on this bucket's own exchange."""
        buffer = bucket.buffer()
        averaging = self._groups.average_over_data(buffer) if self._groups.data_ranks > 1 else None
        # A gather waits for its average. It is started here, in bucket order, not in a callback:
        # two buckets' callbacks may run in another order on another rank.
        if self._buckets:
            self._start_gather(self._buckets[-1])
        self._buckets.append(Bucket(bucket.parameters(), buffer, averaging))
        if averaging is None:
            self._start_gather(self._buckets[-1])
        # The reducer need not wait: `finish` does.
        done: torch.futures.Future[Tensor] = torch.futures.Future()
        done.set_result(buffer)
        return done

    def finish(self, branches: int) -> tuple[list[dict[Tensor, Tensor]], list[Tensor]]:
        """Wait for the exchange: the gradients and the losses of the first `branches` branches."""
        for bucket in self._buckets:
            self._start_gather(bucket)
        for bucket in self._buckets:
            if bucket.gathering is not None:
                bucket.gathering.wait()
        gradients = [
            {p: g for bucket in self._buckets for p, g in bucket.views(branch).items()}
            for branch in range(branches)
        ]
        return gradients, self.losses()[:branches]

    def losses(self) -> list[Tensor]:
        """The loss of each branch, averaged over its data ranks."""
        assert self._header is not None
        rows, work = self._header
        work.wait()
        return list(rows.mean(dim=(1, 2)))

    def _start_gather(self, bucket: Bucket) -> None:
        if bucket.rows is not None:
            return
        if bucket.averaging is not None:
            bucket.averaging.wait()
        if self._gathers:
            bucket.rows, bucket.gathering = self._groups.gather_branches(bucket.buffer)
        else:
            # The reducer writes into its buffer again at the next pass: keep a copy.
            bucket.rows = bucket.buffer.clone().unsqueeze(0)
