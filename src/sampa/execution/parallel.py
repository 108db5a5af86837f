"""A round on several ranks at once: branch b answers probe b, and all ranks learn all answers."""

from __future__ import annotations

import datetime
import inspect
import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset, DistributedSampler

from sampa.execution.collectives import (
    Groups,
    Traffic,
    everyone,
    open_mesh,
    require_same_model,
    require_same_settings,
)
from sampa.execution.evaluate import Answer, Evaluator
from sampa.execution.exchange import GradientExchange
from sampa.execution.executor import Executor, launched_world_size, shard_sampler
from sampa.execution.serial import Serial
from sampa.norm_stats import batch_norms
from sampa.preview import clear_gradients
from sampa.probes import Round
from sampa.vectors import Vector, Weights, restrict


def distribute(
    model: nn.Module,
    branches: int = 2,
    *,
    find_unused_parameters: bool = False,
    bucket_mb: float = 25,
    timeout: float = 300,
) -> Executor:
    """Prepare a model for sharpness-aware training on the processes at hand.

    In plain python the result is serial. Under torchrun the ranks form a mesh branch × data.

    Args:
        model: The model, on its device. Rank 0's weights are copied to all ranks.
        branches: How many probes of a round run at once; 2 for SAMPa. 1 is plain data parallel,
            which is what methods with one probe per round (SAM) want.
        find_unused_parameters: Needed if some parameters take no part in some passes.
        bucket_mb: Size of the pieces in which gradients are exchanged while backward runs.
        timeout: Seconds after which a rank gives up on the others.

    Example:
        >>> model = torch.nn.Linear(2, 1)
        >>> executor = distribute(model)
        >>> base = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> executor.mesh is None  # plain python
        True
    """
    if launched_world_size() == 1 and not _is_distributed():
        return Serial(model)
    return Parallel(
        model,
        branches,
        find_unused_parameters=find_unused_parameters,
        bucket_mb=bucket_mb,
        timeout=timeout,
    )


def _is_distributed() -> bool:
    distributed = torch.distributed
    return (
        distributed.is_available()
        and distributed.is_initialized()
        and distributed.get_world_size() > 1
    )


class BranchModel(DistributedDataParallel):
    """DDP that brings the branches' BatchNorm statistics together before evaluation."""

    executor: Parallel

    def train(self, mode: bool = True) -> BranchModel:
        if not mode:
            self.executor.sync_buffers()
        return super().train(mode)


class Parallel:
    """Answers the probes of a round at the same time, one on each branch."""

    def __init__(
        self,
        model: nn.Module,
        branches: int,
        *,
        find_unused_parameters: bool,
        bucket_mb: float,
        timeout: float,
    ) -> None:
        devices = {p.device for p in model.parameters()}
        if len(devices) != 1:
            raise ValueError(
                f"a distributed model must be on one device per rank, "
                f"got {sorted(map(str, devices))}; "
                "move it with model.to(device) before distribute"
            )
        self.mesh = open_mesh(devices.pop(), branches, datetime.timedelta(seconds=timeout))
        require_same_model(model)
        self._groups = Groups(self.mesh)
        self._exchange = GradientExchange(self._groups)
        self.branch, self.data_rank = self._groups.branch, self._groups.data_rank
        self._find_unused = find_unused_parameters
        self.model = BranchModel(
            model,
            find_unused_parameters=find_unused_parameters,
            gradient_as_bucket_view=True,
            bucket_cap_mb=bucket_mb,
            **_no_buffer_sync(),
        )
        self.model.executor = self
        self.model.register_comm_hook(None, self._exchange.hook)
        self._names: dict[Tensor, str] = {p: name for name, p in model.named_parameters()}
        # The branch whose BatchNorm statistics are ahead of the others', until they are synced.
        self._statistics_owner: int | None = None
        self._counted_buffers = [b for m in batch_norms(model) for b in m.buffers(recurse=False)]
        model.register_forward_pre_hook(lambda *_: self._refuse_stale_statistics(evaluating=True))
        model.register_state_dict_pre_hook(
            lambda *_: self._refuse_stale_statistics(evaluating=False)
        )

    @property
    def module(self) -> nn.Module:
        return self.model.module

    @property
    def traffic(self) -> Traffic:
        """Bytes sent by this rank; set its fields to 0 to count anew."""
        return self._groups.traffic

    def adopt(self, weights: Weights, settings: dict[str, Any]) -> None:
        strangers = [i for i, p in enumerate(weights) if p.requires_grad and p not in self._names]
        if strangers:
            raise ValueError(
                "every trained parameter must belong to the distributed model, got "
                f"{len(strangers)} others (the first is number {strangers[0]} of the optimizer); "
                "their gradients would not be exchanged: put them in the module that is "
                "passed to distribute"
            )
        require_same_settings(settings)

    def answer(self, probes: Round, first: int, evaluator: Evaluator) -> list[Answer]:
        answers: list[Answer] = []
        for start in range(0, len(probes), self._groups.branches):
            wave = probes[start : start + self._groups.branches]
            answers += self._answer_wave(wave, first + start, evaluator)
        return answers

    def agree_on(self, value: int) -> int:
        return everyone(value)[0]

    def warn_if_idle(self, widest_round: int) -> None:
        if widest_round < self._groups.branches:
            warnings.warn(
                f"this method has at most {widest_round} probe(s) a round, so "
                f"{self._groups.branches} branches compute the same thing; "
                f"use sampa.distribute(model, branches={widest_round}) for data parallel training",
                stacklevel=4,
            )

    def sync_buffers(self) -> None:
        """Copy the BatchNorm statistics of the branch that counted them to all ranks.

        A collective: call it on every rank. `executor.model.eval()` does.
        """
        if self._statistics_owner is not None:
            self._groups.broadcast(self._counted_buffers, self._statistics_owner)
            self._statistics_owner = None

    def sampler(
        self, dataset: Dataset[Any], shuffle: bool = True, seed: int = 0
    ) -> DistributedSampler[Any]:
        return shard_sampler(
            dataset, shuffle, seed, shards=self._groups.data_ranks, shard=self.data_rank
        )

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError(
            "an executor on several ranks cannot be copied or pickled: its processes are live; "
            "save optimizer.state_dict() and model.state_dict() instead"
        )

    def _answer_wave(self, wave: Round, first: int, evaluator: Evaluator) -> list[Answer]:
        """Answer at most as many probes as there are branches, all at once.

        A single probe is computed by every branch on the same batch: nothing to gather.
        """
        mine = self.branch % len(wave)
        gathers = len(wave) > 1
        self._exchange.begin(gathers=gathers)
        averages = self._groups.data_ranks > 1 and wave[mine].backward and not wave[mine].local
        needs_exchange = gathers or averages

        def sync(last: bool) -> AbstractContextManager[None]:
            return nullcontext() if last and needs_exchange else self.model.no_sync()

        announce = self._exchange.announce if needs_exchange else _ignore
        # The reducer expects a gradient from every parameter of a pass that it takes part in.
        loss = evaluator.backward(
            wave[mine], first + mine, sync, announce, may_freeze=not needs_exchange
        )
        self._note_statistics(wave)
        if not needs_exchange:
            return [Answer(evaluator.gradient(wave[mine]), loss)]
        return self._collect(wave, evaluator.weights)

    def _collect(self, wave: Round, weights: Weights) -> list[Answer]:
        present = {p for p in weights if p.grad is not None}
        gradients, losses = self._exchange.finish(len(wave))
        self._require_complete(gradients[0], weights)
        clear_gradients(weights)
        vectors = [Vector([g.get(p) if p in present else None for p in weights]) for g in gradients]
        return [
            Answer(g if probe.wrt is None else restrict(g, probe.wrt), loss)
            for probe, g, loss in zip(wave, vectors, losses, strict=True)
        ]

    def _require_complete(self, exchanged: dict[Tensor, Tensor], weights: Weights) -> None:
        if not exchanged:
            raise RuntimeError(
                "no gradient was exchanged: loss_fn must call executor.model, not the model that "
                "was passed to distribute"
            )
        missing = [self._names[p] for p in weights if p.requires_grad and p not in exchanged]
        if missing and not self._find_unused:
            raise RuntimeError(
                f"no gradient arrived for {missing[0]!r} and {len(missing) - 1} other parameters; "
                "if they take no part in every pass, use "
                "sampa.distribute(model, find_unused_parameters=True)"
            )

    def _note_statistics(self, wave: Round) -> None:
        """Remember which branch is ahead in BatchNorm statistics after these probes."""
        counting = [i for i, probe in enumerate(wave) if probe.counts_statistics]
        if not counting or not self._counted_buffers:
            return
        if len(wave) > 1:
            self._statistics_owner = counting[-1]
        elif self._groups.data_ranks > 1:  # all branches alike, but each data rank saw its shard
            self._statistics_owner = self._statistics_owner or 0

    def _refuse_stale_statistics(self, *, evaluating: bool) -> None:
        owner = self._statistics_owner
        owns_them = self.branch == owner and self.data_rank == 0
        if owner is None or owns_them or (evaluating and self.module.training):
            return
        raise RuntimeError(
            f"the BatchNorm statistics of this rank (branch {self.branch}, data {self.data_rank}) "
            f"are not those of branch {owner}, which counted them; call executor.model.eval() or "
            "executor.sync_buffers() on every rank before evaluating or saving the model"
        )


def _ignore(loss: Tensor) -> None:
    """Nobody else needs this loss."""


def _no_buffer_sync() -> dict[str, Any]:
    """DDP's switch for copying buffers at each forward, by the name that this torch knows."""

    parameters = inspect.signature(DistributedDataParallel.__init__).parameters
    name = "forward_sync_buffers" if "forward_sync_buffers" in parameters else "broadcast_buffers"
    return {name: False}
