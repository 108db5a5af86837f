"""The model of one rank: its wrapper, what is trained of it, and whose buffers count.

A batch counts once in BatchNorm's statistics, and in what other layers keep, on one branch; the
others get what it left there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import compress
from operator import is_
from typing import Any, NoReturn, Self

import torch
from torch import Tensor, nn

from sampa.execution.layers import Layers, Place, all_layers, batch_norms, buffers_of, now_at
from sampa.execution.parallel.agreement import BufferMark
from sampa.execution.parallel.groups import Groups, everyone
from sampa.method import Round
from sampa.torch_private import outside_of_graphs
from sampa.vectors.vector import Weights


class SharedStatistics:
    """Knows which branch is ahead in the model's buffers, and copies them to the others.

    A batch counts once. BatchNorm's statistics are not read in training: branches that did not
    count do not need them before the model is evaluated or saved, and until then using theirs
    is refused. Other buffers that change, such as the vectors of spectral norm, are copied before
    each round, because the next pass begins with them. One that begins to change later is noticed
    on each rank by itself, since all of them make the same passes; that they agree is told by the
    marks that travel with the losses, and read before the first copy.
    """

    def __init__(self, model: nn.Module, groups: Groups) -> None:
        self._groups = groups
        self._model = model
        self._named: dict[Place, str] = {}
        self._unread: list[Place] = []
        self._others: list[Place] = []
        self._read: list[Place] | None = None  # of the others, those that change; None: not known
        self._steady: list[Place] = []  # the rest of the others, once it is known
        self._told: set[Place] = set()  # of those, what began to change in this round
        self.renew()
        self._owner: int | None = None  # the branch that is ahead
        guard = Guard(self._refuse_if_behind)
        model.register_forward_pre_hook(guard.before_forward)
        model.register_state_dict_pre_hook(guard.before_saving)

    def renew(self) -> None:
        """Look at the model again: layers may have come or gone. New buffers may change."""
        known = {*self._named} - {*(self._read or [])}
        places = [(name, p) for name, m in self._model.named_modules() for p, _ in buffers_of([m])]
        unread = {layer for layer in batch_norms(self._model) if layer.momentum is not None}
        self._named = {place: f"{name}.{place[1]}" for name, place in places}
        self._unread = [place for place in self._named if place[0] in unread]
        self._others = [place for place in self._named if place[0] not in unread]
        if self._read is not None:
            self._follow(place for place in self._others if place not in known)

    def has_other_buffers(self) -> bool:
        """Whether the model has other buffers now than when it was looked at."""
        return [place for place, _ in buffers_of(all_layers(self._model))] != [*self._named]

    def _follow(self, changing: Iterable[Place]) -> None:
        """Take these of the others for those that change."""
        self._told, found = set(), set(changing)
        self._read = [place for place in self._others if place in found]
        self._steady = [place for place in self._others if place not in found]

    def begin_round(self, layers: Layers) -> None:
        """Bring buffers that passes read to all ranks; all of them call it."""
        if self._read is None and layers.has_learned:
            own = [i for i, place in enumerate(self._others) if place in layers.changing]
            changing = set().union(*everyone(own)) if self._others else set()
            self._follow(self._others[i] for i in changing)
        layers.watched = self._steady
        if self._owner is not None and self._others:
            self._broadcast(self._read or [])
            self._owner = self._owner if self._unread else None

    def tell(self, layers: Layers) -> BufferMark | None:
        """What tells the others that passes of this rank began to change buffers, if they did."""
        layers.learn()
        self._told |= {place for place in self._steady if place in layers.changing}
        if not self._told:
            return None
        return BufferMark([i for i, place in enumerate(self._named) if place in self._told])

    @property
    def has_news(self) -> bool:
        """Whether passes of this round began to change buffers."""
        return bool(self._told)

    def take_up(self) -> None:
        """From now on bring to all ranks what they told each other; all of them call it."""
        self._follow([*(self._read or []), *self._told])

    def names(self) -> list[str]:
        """Of all buffers."""
        return list(self._named.values())

    def prepare(self, wave: Round) -> None:
        """Bring the statistics to where these probes count or use them; all ranks call it.

        Raises:
            RuntimeError: If two branches are to count at the same time.
        """
        counting = self._counting(wave)
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
        found = {n: now_at(place) for place, n in self._named.items() if place not in changing}
        return {n: b for n, b in found.items() if b is not None}

    def _broadcast(self, places: list[Place]) -> None:
        assert self._owner is not None
        found = map(now_at, places)  # some may have been removed since
        self._groups.broadcast([b for b in found if b is not None], self._owner)

    def _counting(self, wave: Round) -> list[int]:
        if not self._unread and not (self._others if self._read is None else self._read):
            return []
        counting = [i for i, probe in enumerate(wave) if probe.counts_statistics]
        if len(wave) > 1 and len(counting) > 1:
            raise RuntimeError(
                "only one probe of a round may count in BatchNorm statistics, got "
                f"{len(counting)}: on several branches none would have them all; give the others "
                "Probe(..., mode=Mode(statistics=False))"
            )
        return counting

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

    def zero_loss(self, parameters: list[Tensor]) -> Tensor:
        """A loss whose gradient is zero for each of the parameters. The model itself does not run.

        It takes the way of any other loss through the exchange.
        """
        module, self.module = self.module, _Zero(parameters)
        try:
            with torch.enable_grad():
                return self.forward()
        finally:
            self.module = module

    def __getstate__(self) -> NoReturn:
        refuse_to_copy()


class _Zero(nn.Module):
    def __init__(self, parameters: list[Tensor]) -> None:
        super().__init__()
        self._parameters_of_another = parameters

    def forward(self) -> Tensor:
        return torch.stack([p.flatten()[:0].sum() for p in self._parameters_of_another]).sum()


class PlainModel(BranchModel):
    """Leaves its gradients to an exchange that takes them after backward."""

    def __init__(
        self, model: nn.Module, statistics: SharedStatistics, note_call: Callable[[], None]
    ) -> None:
        super().__init__()
        self.module = model
        self._statistics = statistics
        self.note_call = note_call

    def forward(self, *inputs: Any, **named: Any) -> Any:
        _call_outside_of_graphs(self.note_call)
        return self.module(*inputs, **named)

    def no_sync(self) -> AbstractContextManager[None]:
        return nullcontext()


@outside_of_graphs
def _call_outside_of_graphs(function: Callable[[], None]) -> None:
    function()


class TrainedParameters:
    """Which parameters the ranks have agreed to train.

    Attributes:
        names: The name of each parameter of the model.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self.names: dict[Tensor, str] = {}
        self._lists: dict[tuple[int, ...], list[Tensor]] = {}  # the optimizers', by identity
        self._latest: list[Tensor] = []  # the one of the last step
        self._watched: list[Tensor] = []
        self._flags: list[bool] = []
        self._kinds: list[str] = []
        self.renew_names()
        self.agree([])

    def renew_names(self) -> None:
        """Look at the model again: layers may have come, or been replaced."""
        self.names.clear()
        self.names.update({p: name for name, p in self._model.named_parameters()})

    def agree(self, weights: Weights) -> None:
        """Take for agreed on what is trained now, with these parameters of an optimizer."""
        watched = list(dict.fromkeys([*self.names, *weights]))
        if not self._is_same(watched):
            self._lists = {}
        self._watched, self._flags = watched, [p.requires_grad for p in watched]
        self._kinds = _kinds_of(watched)
        self._latest = self._lists[tuple(map(id, weights))] = list(weights)

    def differs_from_model(self) -> bool:
        """Whether the model has other parameters now, or of another kind, or trains others."""
        watched: list[Tensor] = list(self._model.parameters())
        return not self._is_same(watched) or self._kinds != _kinds_of(watched)

    def has_changed(self, weights: Weights) -> bool:
        """Whether other parameters are trained now than was agreed on.

        Raises:
            RuntimeError: If the parameters themselves are of another kind.
        """
        if _kinds_of(self._watched) != self._kinds:
            raise RuntimeError(
                f"the model must stay as it was distributed, got parameters on {self._kinds[0]} "
                f"that are now on {_kinds_of(self._watched)[0]}; convert or move it before "
                "sampa.distribute (autocast computes in another precision without that)"
            )
        latest = self._lists.get(tuple(map(id, weights)))
        if latest is None or self._flags != [p.requires_grad for p in self._watched]:
            return True
        self._latest = latest
        return False

    @contextmanager
    def as_agreed(self) -> Iterator[tuple[list[Tensor], list[Tensor]]]:
        """Train what was agreed on inside the block.

        Yields:
            The parameters of the optimizer, and those of the model that are trained.
        """
        now = [(p, p.requires_grad, p.grad) for p in self._watched]
        for p, flag in zip(self._watched, self._flags, strict=True):
            p.grad = None
            p.requires_grad_(flag)
        try:
            yield self._latest, list(compress(self._watched, self._flags))
        finally:
            for p, flag, grad in now:
                p.grad = grad
                p.requires_grad_(flag)

    def _is_same(self, watched: list[Tensor]) -> bool:
        same = len(watched) == len(self._watched) and all(map(is_, watched, self._watched))
        return same and self._flags == [p.requires_grad for p in watched]


def _kinds_of(parameters: list[Tensor]) -> list[str]:
    """Of the first and the last: a model is converted or moved as a whole."""
    return [f"{p.device} as {p.dtype}" for p in [*parameters[:1], *parameters[-1:]]]


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
