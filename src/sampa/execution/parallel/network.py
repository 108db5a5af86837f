"""The exchange of gradients over a network, inside DDP's communication hook.

torch's reducer buckets the gradients and calls the hook for each bucket while backward still runs,
so all but the last exchange is hidden. Gradients are gathered whole, never summed: every rank then
holds every branch's gradient bit for bit, and λ = 0 is nothing special.
"""

# No deferred annotations here: DDP compares those of its hook with the real types.

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from sampa.execution.evaluate import Evaluator
from sampa.execution.lookahead import clear_gradients
from sampa.execution.parallel.agreement import BatchMark, UnusedMark
from sampa.execution.parallel.exchange import (
    ParameterNames,
    Sharing,
    gradient_stride,
    refuse_uncalled,
    refuse_unused,
    travelling,
)
from sampa.execution.parallel.groups import Groups
from sampa.vectors.vector import Vector

Gradients = dict[Tensor, Tensor]
"""The gradient of each parameter that took part in a pass."""


@dataclass
class Bucket:
    """A flat piece of the gradient on its way to the other ranks."""

    parameters: list[Tensor]
    strides: list[tuple[int, ...]]
    buffer: Tensor  # the reducer's own memory
    rows: list[Tensor]  # one per branch; this rank's is the buffer, unless it travels rounded
    is_averaged: bool = False
    averaging: torch.futures.Future[None] | None = None
    gathering: list[dist.Work] = field(default_factory=list)

    def round(self, branch: int) -> None:
        """Put this branch's gradient into its row, if it is to travel in another dtype."""
        if self.rows[branch] is not self.buffer:
            self.rows[branch].copy_(self.buffer)

    def gradients(self, branch: int) -> Gradients:
        """A copy of the gradient of each parameter, as computed by `branch`.

        The reducer fills its memory again, and a tensor in it may not be aligned.
        """
        flat = self.rows[branch].to(self.buffer.dtype)
        views, offset = [], flat.storage_offset()
        for p, stride in zip(self.parameters, self.strides, strict=True):
            views.append(flat.as_strided(p.shape, stride, offset))
            offset += p.numel()
        return dict(zip(self.parameters, Vector(views).clone().present, strict=True))


class UsedParameters:
    """Notes which parameters get a gradient in a backward pass.

    DDP fills in zeros where a parameter took no part, and a base optimizer treats "zero" and "none"
    differently (weight decay, momentum); in one process it is none.
    """

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        self._trainable = [p for p in parameters if p.requires_grad]
        self._used: set[Tensor] = set()
        self._reached: set[Tensor] = set()  # also those that got none
        self._hooks = [p.register_post_accumulate_grad_hook(self._note) for p in self._trainable]

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _note(self, p: Tensor) -> None:
        self._reached.add(p)
        if p.grad is not None:  # a function may give no gradient to a parameter in its graph
            self._used.add(p)

    def forget(self) -> None:
        self._used.clear()
        self._reached.clear()

    def unused(self) -> list[Tensor]:
        return [p for p in self._trainable if p.requires_grad and p not in self._used]

    def reach_all(self) -> None:
        """Give a gradient of zero to each parameter that backward did not come to."""
        left = [p for p in self.unused() if p not in self._reached]
        torch.autograd.backward(left, [torch.zeros_like(p) for p in left])

    def bitmap(self) -> Tensor:
        """1 where a parameter was used, in an order that all ranks share."""
        used = [p in self._used for p in self._trainable]
        return torch.tensor(used, dtype=torch.uint8, device=self._trainable[0].device)

    def select(self, bitmap: Tensor) -> set[Tensor]:
        """The parameters that a bitmap marks."""
        return {p for p, used in zip(self._trainable, bitmap.tolist(), strict=True) if used}


class GatheredLosses:
    """The loss of each branch, averaged over its data ranks, and every rank's mark."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._dtype = torch.float64
        self._gathering: tuple[Tensor, dist.Work] | None = None
        self.marks = torch.zeros(groups.branches, groups.data_ranks)

    def announce(self, loss: Tensor, mark: BatchMark | None = None) -> None:
        self._dtype = loss.dtype
        header = loss.detach().double().reshape(1)
        own = torch.zeros_like(header) if mark is None else mark.value(header)
        self._gathering = self._groups.gather_headers(torch.cat([header, own]))

    def wait(self, branches: int) -> list[Tensor]:
        assert self._gathering is not None
        rows, work = self._gathering
        self._groups.wait(work)
        self.marks = rows[..., -1]
        return list(rows[..., :1].mean(dim=(1, 2)).to(self._dtype)[:branches])


class NetworkExchange:
    """Averages over data ranks and gathers over branches, bucket by bucket, in a fixed order."""

    def __init__(
        self,
        groups: Groups,
        names: ParameterNames,
        *,
        use_varies: bool,
        dtype: torch.dtype | None = None,
    ) -> None:
        self._names = names
        self._dtype = dtype
        self._used = UsedParameters(names)
        self._groups = groups
        self._use_varies = use_varies
        self._buckets: list[Bucket] = []
        self._gathers = 0  # buckets whose gather was started
        self._lock = threading.Lock()
        self._sharing = Sharing.NOTHING
        self._loss = torch.zeros(())
        self._losses = GatheredLosses(groups)
        self._strides: dict[Tensor, tuple[int, ...]] = {}

    def begin(self, sharing: Sharing) -> None:
        with self._lock:
            self._buckets, self._gathers = [], 0
        self._sharing = sharing
        self._used.forget()

    def announce(self, loss: Tensor, mark: BatchMark | None = None) -> None:
        self._loss = loss
        if Sharing.GATHER not in self._sharing:  # else with the batch's mark, which takes longer
            self._losses.announce(loss, mark)

    def hook(self, _state: None, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        """DDP's communication hook. It waits for nothing: backward goes on."""
        buffer, parameters = bucket.buffer(), bucket.parameters()
        rows = [buffer]
        if Sharing.GATHER in self._sharing:
            # Here and not in a callback, which has a stream of its own on a GPU.
            dtype = travelling(buffer.dtype, self._dtype)
            rounds = dtype != buffer.dtype
            count = self._groups.branches - (0 if rounds else 1)
            rows = [torch.empty_like(buffer, dtype=dtype) for _ in range(count)]
            if not rounds:
                rows.insert(self._groups.branch, buffer)
        own = Bucket(parameters, [self._stride(p) for p in parameters], buffer, rows)
        self._buckets.append(own)
        if Sharing.AVERAGE in self._sharing:
            averaging = self._groups.average_over_data(buffer).get_future()
            own.averaging = averaging.then(lambda done: self._note_averaged(own, done))
        else:
            self._note_averaged(own)
        # The reducer need not wait: `collect` does.
        done: torch.futures.Future[Tensor] = torch.futures.Future(
            devices=[buffer.device] if buffer.is_cuda else None
        )
        done.set_result(buffer)
        return done

    def collect(
        self, evaluator: Evaluator, branches: int, mark: BatchMark | None = None
    ) -> list[Vector]:
        unused = [] if self._use_varies else self._used.unused()
        if unused and Sharing.GATHER not in self._sharing:  # the losses are on their way already
            refuse_unused(self._names, unused)
        if unused:
            # The others wait for this rank: it takes part, and tells all what is wrong.
            self._used.reach_all()
            mark = UnusedMark(self._names, {*unused})
        if not self._buckets:
            refuse_uncalled()
        if Sharing.GATHER in self._sharing:
            self._losses.announce(self._loss, mark)
        uses = self._groups.gather_headers(self._used.bitmap()) if self._use_varies else None
        for bucket in self._buckets:
            if bucket.averaging is not None:
                self._groups.wait(bucket.averaging)
        gradients = self._received(branches)
        if uses is not None:
            gradients = self._without_unused(gradients, *uses)
        clear_gradients(evaluator.weights)
        return [Vector(g.get(p) for p in evaluator.weights) for g in gradients]

    def losses(self, branches: int) -> list[Tensor]:
        return self._losses.wait(branches)

    def marks(self) -> Tensor:
        return self._losses.marks

    def close(self) -> None:
        self._used.close()

    def _received(self, branches: int) -> list[Gradients]:
        """Every branch's gradient; a bucket's rows are gone before the next one is copied."""
        gradients: list[Gradients] = [{} for _ in range(branches)]
        while self._buckets:
            bucket = self._buckets.pop(0)
            for work in bucket.gathering:
                self._groups.wait(work)
            for branch, found in enumerate(gradients):
                found |= bucket.gradients(branch)
        return gradients

    def _without_unused(
        self, gradients: list[Gradients], uses: Tensor, work: dist.Work
    ) -> list[Gradients]:
        """Drop the zeros of parameters that none of the branch's data ranks used."""
        self._groups.wait(work)
        used = [self._used.select(bitmap) for bitmap in uses.amax(dim=1)[: len(gradients)]]
        return [
            {p: g for p, g in whole.items() if p in present}
            for whole, present in zip(gradients, used, strict=True)
        ]

    def _note_averaged(self, bucket: Bucket, done: torch.futures.Future[Any] | None = None) -> None:
        """Start the gathers whose turn it is.

        A gather follows its average. Averages may end in another order on another rank, and gathers
        must start in the same one everywhere: that of the buckets.
        """
        if done is not None:
            done.value()  # raises if the average failed
        with self._lock:
            bucket.is_averaged = True
            if Sharing.GATHER not in self._sharing:
                return
            while self._gathers < len(self._buckets) and self._buckets[self._gathers].is_averaged:
                ready = self._buckets[self._gathers]
                ready.round(self._groups.branch)
                ready.gathering = self._groups.gather_branches([ready.rows], self._gathers)
                self._gathers += 1

    def _stride(self, p: Tensor) -> tuple[int, ...]:
        if p not in self._strides:
            self._strides[p] = gradient_stride(p)
        return self._strides[p]
