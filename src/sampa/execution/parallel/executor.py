"""A round on several ranks at once: branch b answers probe b, and all ranks learn all answers."""

from __future__ import annotations

import dataclasses
import datetime
import sys
import warnings
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, DistributedSampler

from sampa.execution.evaluate import Answer, Evaluator
from sampa.execution.executor import shard_sampler
from sampa.execution.parallel.agreement import Agreement, batch_mark
from sampa.execution.parallel.exchange import Exchange
from sampa.execution.parallel.groups import (
    Groups,
    Traffic,
    everyone,
    open_mesh,
    require_same,
    require_same_model,
)
from sampa.execution.parallel.model import (
    PlainModel,
    ReducedModel,
    confine_to_branch,
    refuse_to_copy,
)
from sampa.execution.parallel.network import NetworkExchange
from sampa.execution.parallel.shared import SharedMemoryExchange
from sampa.execution.parallel.shared_memory import SharedMemory, open_shared_memory
from sampa.execution.parallel.statistics import SharedStatistics
from sampa.execution.profiling import marked
from sampa.method import INCOMING, Probe, Round
from sampa.vectors.vector import Weights


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
        check_every: int,
        shared_memory: bool,
    ) -> None:
        devices = {p.device for p in model.parameters()}
        if len(devices) != 1:
            raise ValueError(
                f"a distributed model must be on one device per rank, "
                f"got {sorted(map(str, devices))}; "
                "move it with model.to(device) before distribute"
            )
        if any(p.is_complex() for p in model.parameters()):
            raise ValueError(
                "a distributed model must have real parameters, got complex ones, whose gradients "
                "are not exchanged; keep torch.view_as_real(...) of them as parameters"
            )
        self.mesh = open_mesh(devices.pop(), branches, datetime.timedelta(seconds=timeout))
        require_same_model(model)
        self._groups = Groups(self.mesh)
        self.branch, self.data_rank = self._groups.branch, self._groups.data_rank
        self._names: dict[Tensor, str] = {p: name for name, p in model.named_parameters()}
        self._is_suspected_idle = False
        self._buckets_are_final = find_unused_parameters or self._groups.data_ranks < 3
        self._agreement = Agreement(self._groups, self._names, check_every)
        self._statistics = SharedStatistics(model, self._groups)
        confine_to_branch(model, self._groups)
        # DDP does it for its own, and for buffers only since torch 2.13.
        parameters = [p.detach() for p in model.parameters()]
        self._groups.broadcast([*parameters, *model.buffers()], branch=0)
        memory = self._shared_memory(model, timeout) if shared_memory else None
        self.exchange: Exchange
        self.model: PlainModel | ReducedModel
        if memory is not None:
            self.exchange = shared = SharedMemoryExchange(
                self._groups, memory, self._names, use_varies=find_unused_parameters
            )
            self.model = PlainModel(model, self._statistics, shared.note_call)
        else:
            self.exchange = network = NetworkExchange(
                self._groups, self._names, use_varies=find_unused_parameters
            )
            self.model = ReducedModel(
                model, self._statistics, bucket_mb=bucket_mb, find_unused=find_unused_parameters
            )
            self.model.register_comm_hook(None, network.hook)

    @property
    def module(self) -> nn.Module:
        return self.model.module

    @property
    def traffic(self) -> Traffic:
        """Bytes sent by this rank; set its fields to 0 to count anew."""
        return self._groups.traffic

    def adopt(self, weights: Weights, settings: dict[str, Any]) -> None:
        trained = {
            f"parameter {i}": self._names.get(p) for i, p in enumerate(weights) if p.requires_grad
        }
        described = everyone({**trained, **settings})
        for rank, theirs in enumerate(described):
            strangers = [
                key for key, name in theirs.items() if key not in settings and name is None
            ]
            if strangers:
                raise ValueError(
                    "every trained parameter must belong to the distributed model, got "
                    f"{len(strangers)} others on rank {rank} (the first is {strangers[0]} of the "
                    "optimizer); their gradients would not be exchanged: put them in the module "
                    "that is passed to distribute"
                )
        require_same("optimizer", described)

    def answer(self, probes: Round, first: int, evaluator: Evaluator) -> list[Answer]:
        if self._is_suspected_idle:
            self._is_suspected_idle = False
            self._warn_if_narrow(len(probes))
        self._groups.step = evaluator.step
        answers: list[Answer] = []
        for start in range(0, len(probes), self._groups.branches):
            wave = probes[start : start + self._groups.branches]
            _require_exchangeable(wave)
            answers += self._answer_wave(wave, first + start, evaluator)
        return answers

    def agree_on(self, value: int) -> int:
        return everyone(value)[0]

    def warn_if_idle(self, widest_round: int) -> None:
        """Suspect it after the first update; the next round tells.

        SAMPa with the published script's start makes its first update in a round of one probe.
        """
        self._is_suspected_idle = widest_round < self._groups.branches

    def sync_buffers(self) -> None:
        """Copy the BatchNorm statistics of the branch that counted them to all ranks.

        A collective: call it on every rank. `executor.model.eval()` does.
        """
        self._statistics.sync()

    def sampler(
        self, dataset: Dataset[Any], shuffle: bool = True, seed: int = 0
    ) -> DistributedSampler[Any]:
        return shard_sampler(
            dataset, shuffle, seed, shards=self._groups.data_ranks, shard=self.data_rank
        )

    def __getstate__(self) -> NoReturn:
        refuse_to_copy()

    def _warn_if_narrow(self, probes: int) -> None:
        if probes < self._groups.branches:
            warnings.warn(
                f"this method has at most {probes} probe(s) a round, so {self._groups.branches} "
                "branches compute the same thing; use "
                f"sampa.distribute(model, branches={probes}) for data parallel training",
                stacklevel=_stacklevel_of_caller(),
            )

    def _answer_wave(self, wave: Round, first: int, evaluator: Evaluator) -> list[Answer]:
        """Answer at most as many probes as there are branches, all at once.

        A single probe is computed by every branch on the same batch: nothing to gather.
        """
        number = self.branch % len(wave)
        probe = wave[number]
        gathers = len(wave) > 1
        averages = self._groups.data_ranks > 1 and probe.mode.backward
        averages = averages and not evaluator.is_local(probe)
        self._statistics.prepare(wave)
        exchanges = gathers or averages
        self._agreement.check(evaluator.weights, evaluator.batches[INCOMING], exchanges=exchanges)
        mark = batch_mark(evaluator.batches[INCOMING]) if gathers else 0.0
        if exchanges:
            self._settle_buckets(probe, first + number, evaluator)
        self.exchange.begin(gathers=gathers, averages=averages, mark=mark)
        loss = self._backward(probe, first + number, evaluator)
        self._statistics.note(wave)
        with marked("exchange"):
            gradients = (
                self.exchange.collect(evaluator, len(wave)) if exchanges else [evaluator.taken()]
            )
        alone = not exchanges and self._groups.data_ranks == 1
        losses = [loss] if alone else self.exchange.losses(len(wave))
        if gathers:
            self._agreement.require_same_batches(self.exchange.marks())
        return [Answer.to(*answer) for answer in zip(wave, gradients, losses, strict=True)]

    def _backward(self, probe: Probe, number: int, evaluator: Evaluator) -> Tensor:
        exchange = self.exchange

        def sync(last: bool) -> AbstractContextManager[None]:
            return nullcontext() if last and exchange.is_wanted else self.model.no_sync()

        announce = (
            exchange.announce if self._groups.data_ranks > 1 or exchange.is_wanted else _ignore
        )
        # The reducer expects a gradient from every parameter of a pass that it takes part in.
        return evaluator.backward(probe, number, sync, announce, may_freeze=not exchange.is_wanted)

    def _settle_buckets(self, probe: Probe, number: int, evaluator: Evaluator) -> None:
        """Let DDP arrange its buckets, with a pass whose result is dropped.

        It does so after the first exchange, in the order in which gradients were ready. A sum over
        three or more ranks depends on the place in a bucket, so a resumed run, which starts with
        the first arrangement again, would differ from one that was not interrupted.
        """
        if not self._buckets_are_final:
            mode = dataclasses.replace(probe.mode, statistics=False)
            rehearsal = dataclasses.replace(probe, mode=mode, objective=None, observe=None)
            self.exchange.begin(gathers=False, averages=True)
            self._backward(rehearsal, number, evaluator)
            self.exchange.collect(evaluator, branches=1)
            self._buckets_are_final = True

    def _shared_memory(self, model: nn.Module, timeout: float) -> SharedMemory | None:
        """Memory for the gradients of all branches, if all ranks are branches of one machine."""
        trained = [p for p in model.parameters() if p.requires_grad]
        on_cpu = all(p.device.type == "cpu" for p in trained)
        dtypes = {p.dtype for p in trained}
        fits = on_cpu and len(dtypes) == 1 and all(dtype.is_floating_point for dtype in dtypes)
        if self._groups.data_ranks > 1 or not fits:
            return None
        size = sum(p.nbytes for p in trained)
        return open_shared_memory(self._groups, size, datetime.timedelta(seconds=timeout))


def _require_exchangeable(wave: Round) -> None:
    if len(wave) > 1 and any(probe.observe or not probe.mode.backward for probe in wave):
        raise RuntimeError(
            "a probe with observe, or without a backward pass, must be alone in its round: the "
            "other ranks would not learn what it saw; yield it in a round of its own"
        )


def _ignore(loss: Tensor) -> None:
    """Nobody else needs this loss."""


def _stacklevel_of_caller() -> int:
    """How far above the frame that warns the first one is that is not sampa's or torch's."""
    libraries = (str(Path(__file__).parents[2]), str(Path(torch.__file__).parent))
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(libraries):
        frame, level = frame.f_back, level + 1
    return level
