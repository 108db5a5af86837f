"""The model of one rank: the wrapper that its exchange needs, and whose BatchNorm statistics count.

A batch counts once in BatchNorm's statistics, on one branch; they are brought together on demand.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NoReturn, Self

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from sampa.execution.layers import Layers, Place, batch_norms, buffers_of
from sampa.execution.parallel.groups import Groups, everyone
from sampa.method import Round
from sampa.torch_private import outside_of_graphs

MB = 1 << 20
SMALLEST_BUCKET_MB, LARGEST_BUCKET_MB = 0.5, 25
COMPILERS_LEAST_BUCKET = MB


class SharedStatistics:
    """Knows which branch is ahead in the model's buffers, and copies them to the others.

    A batch counts once. BatchNorm's statistics are not read in training: branches that did not
    count do not need them before someone evaluates or saves the model, and until then using theirs
    is refused. Other buffers that change, such as the vectors of spectral norm, are copied before
    each round, because the next pass begins with them.
    """

    def __init__(self, model: nn.Module, groups: Groups) -> None:
        self._groups = groups
        self._model = model
        unread = {layer for layer in batch_norms(model) if layer.momentum is not None}
        places = [place for place, _ in buffers_of(model.modules())]
        self._unread = [place for place in places if place[0] in unread]
        self._others = [place for place in places if place[0] not in unread]
        self._read: list[Place] | None = None  # of the others, those that change; None: not known
        self._owner: int | None = None  # the branch that is ahead
        guard = Guard(self._refuse_if_behind)
        model.register_forward_pre_hook(guard.before_forward)
        model.register_state_dict_pre_hook(guard.before_saving)

    def begin_round(self, layers: Layers) -> None:
        """Bring buffers that passes read to all ranks; all of them call it."""
        if self._read is None and layers.has_learned:
            own = [i for i, place in enumerate(self._others) if place in layers.changing]
            changing = set().union(*everyone(own)) if self._others else set()
            self._read = [self._others[i] for i in sorted(changing)]
        if self._owner is not None and self._others:
            self._broadcast(self._read or [])
            self._owner = self._owner if self._unread else None

    def prepare(self, wave: Round) -> None:
        """Bring the statistics to where these probes count or use them; all ranks call it.

        Raises:
            RuntimeError: If two branches are to count at the same time.
        """
        counting = self._counting(wave)
        if len(wave) > 1 and len(counting) > 1:
            raise RuntimeError(
                "only one probe of a round may count in BatchNorm statistics, got "
                f"{len(counting)}: on several branches none would have them all; give the others "
                "Probe(..., mode=Mode(statistics=False))"
            )
        moves_on = len(wave) > 1 and bool(counting) and counting != [self._owner]
        if moves_on or any(probe.mode.evaluation for probe in wave):
            self.sync()

    def note(self, wave: Round) -> None:
        """Remember which branch is ahead after these probes."""
        counting = self._counting(wave)
        if not counting:
            return
        if len(wave) > 1:
            self._owner = counting[0]
        elif self._groups.data_ranks > 1:  # all branches alike, but each data rank saw its shard
            self._owner = self._owner or 0

    def sync(self) -> None:
        """Copy the buffers of the branch that is ahead to all ranks; a collective."""
        if self._owner is not None:
            self._broadcast([*self._unread, *(self._others if self._read is None else self._read)])
            self._owner = None

    def steady(self) -> dict[str, Tensor]:
        """The buffers that passes leave alone, which are the same on all ranks."""
        changing = {*self._unread, *(self._others if self._read is None else self._read)}
        named = self._model.named_modules()
        found = ((name, place, b) for name, m in named for place, b in buffers_of([m]))
        return {f"{name}.{place[1]}": b for name, place, b in found if place not in changing}

    def _broadcast(self, places: list[Place]) -> None:
        assert self._owner is not None
        self._groups.broadcast([getattr(*place) for place in places], self._owner)

    def _counting(self, wave: Round) -> list[int]:
        if not self._unread and not (self._others if self._read is None else self._read):
            return []
        return [i for i, probe in enumerate(wave) if probe.counts_statistics]

    def _refuse_if_behind(self, *, evaluating: bool) -> None:
        groups, owner = self._groups, self._owner
        owns_them = groups.branch == owner and groups.data_rank == 0
        if owner is None or owns_them or (evaluating and self._model.training):
            return
        raise RuntimeError(
            f"the BatchNorm statistics (or other buffers) of this rank (branch {groups.branch}, "
            f"data {groups.data_rank}) are not those of branch {owner}, which counted them; call "
            "executor.model.eval() or executor.sync_buffers() on every rank before evaluating or "
            "saving the model"
        )


class Guard:
    """The hooks that refuse to use a model whose statistics are behind.

    A copy of the model (an average of weights, a pickle) has no ranks: its guard lets all pass.
    """

    def __init__(self, refuse_if_behind: Callable[..., None] | None = None) -> None:
        self._refuse_if_behind = refuse_if_behind

    def __reduce__(self) -> tuple[type[Guard], tuple[()]]:
        return Guard, ()

    @outside_of_graphs
    def before_forward(self, *_: Any) -> None:
        if self._refuse_if_behind is not None:
            self._refuse_if_behind(evaluating=True)

    def before_saving(self, *_: Any) -> None:
        if self._refuse_if_behind is not None:
            self._refuse_if_behind(evaluating=False)


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


def chosen_bucket_mb(model: nn.Module) -> float:
    """The size of buckets for a model: what is sent after backward has ended is one bucket.

    A sixteenth of the gradient, but not so small that the overhead of a message counts, nor larger
    than DDP's own buckets.
    """
    size = sum(p.nbytes for p in model.parameters() if p.requires_grad) / MB
    return min(max(size / 16, SMALLEST_BUCKET_MB), LARGEST_BUCKET_MB)


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
