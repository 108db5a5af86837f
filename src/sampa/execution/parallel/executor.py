"""A round on several ranks at once: branch b answers probe b, and all ranks learn all answers."""

from __future__ import annotations

import dataclasses
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.utils.data import Dataset, DistributedSampler

from sampa.execution.evaluate import Answer, Evaluator, Pass
from sampa.execution.executor import Doubt, shard_sampler, warn_if_narrow
from sampa.execution.parallel.agreement import Agreement, BatchMark, ChangeMark
from sampa.execution.parallel.exchange import Exchange, Sharing, Tell, settle_buckets
from sampa.execution.parallel.foreign import ForeignAveraging
from sampa.execution.parallel.groups import (
    Groups,
    Traffic,
    everyone,
    require_same_model,
    require_same_parameters,
)
from sampa.execution.parallel.model import (
    PlainModel,
    SharedStatistics,
    TrainedParameters,
    confine_to_branch,
    refuse_to_copy,
)
from sampa.execution.parallel.reduced import ReducedModel
from sampa.execution.parallel.route import Route, RouteOptions
from sampa.execution.parallel.sharded import (
    ShardRoute,
    is_gathered,
    refuse_changed_training,
    require_shards,
    reshard,
)
from sampa.execution.profiling import EXCHANGE
from sampa.method import INCOMING, Probe, Round
from sampa.vectors.reductions import over_shards
from sampa.vectors.vector import Vector, Weights, compute_norms, cosine, is_sharded


@dataclasses.dataclass
class ExchangedPass(Pass):
    """Lets gradients travel in the last micro-batch's backward pass, where they do."""

    exchange: Exchange
    model: PlainModel | ReducedModel
    sharing: Sharing
    announces: bool
    tell: Tell = lambda: None

    def __post_init__(self) -> None:
        # The reducer expects a gradient from every parameter of a pass that it takes part in.
        self.may_freeze = not self.sharing

    def around(self, last: bool) -> AbstractContextManager[None]:
        return nullcontext() if last and self.sharing else self.model.no_sync()

    def announce(self, loss: Tensor) -> None:
        if self.announces:
            self.exchange.announce(loss, self.tell())


class Parallel:
    """Answers the probes of a round at the same time, one on each branch."""

    def __init__(
        self, model: nn.Module, mesh: DeviceMesh, options: RouteOptions, check_every: int
    ) -> None:
        self.mesh = mesh
        self.is_sharded = any(map(is_sharded, model.parameters())) or is_gathered(model)
        if self.is_sharded:
            require_shards(model, mesh)
        require_same_model(model)
        self._groups = Groups(mesh)
        self.branch, self.data_rank = self._groups.branch, self._groups.data_rank
        self._trained = TrainedParameters(model)
        self._has_news = False  # whether other parameters are trained than agreed on, or buffers
        self._is_suspected_idle = False
        self._doubts: list[Doubt] = []
        self._handed_over: list[Doubt] = []
        self._mark = BatchMark()
        self._statistics = SharedStatistics(model, self._groups)
        self._agreement = Agreement(
            self._groups, self._trained.names, self._statistics.names, check_every
        )
        self._foreign = ForeignAveraging(self._groups)
        confine_to_branch(model, self._groups)
        route = ShardRoute if self.is_sharded else Route
        self._route = route(self._groups, model, self._statistics, self._trained.names, options)
        self.exchange, self.model = self._route.open()
        self._buckets_are_final = self._route.keeps_its_buckets

    @property
    def module(self) -> nn.Module:
        return self.model.module

    @property
    def traffic(self) -> Traffic:
        """Bytes sent by this rank; set its fields to 0 to count anew."""
        return self._groups.traffic

    def adopt(self, weights: Weights, settings: dict[str, Any]) -> None:
        self.forget_copies()
        require_same_parameters(self.module, weights, settings)
        if any(everyone(self._trained.differs_from_model())):
            self._open_again()
        self._trained.agree(weights)

    def answer(self, probes: Round, first: int, evaluator: Evaluator) -> list[Answer]:
        if self._is_suspected_idle:
            self._is_suspected_idle = False
            warn_if_narrow(len(probes), self._groups.branches)
        self._groups.step = evaluator.step
        if first == 0:
            self._doubts = []  # of a step that was given up
            self._has_news = (
                self._trained.has_changed(evaluator.weights) or self._statistics.has_other_buffers()
            )
            if self._has_news and self.is_sharded:
                refuse_changed_training()
        if first == 0 and self._groups.branches > 1:  # once a step
            self._mark = BatchMark(evaluator.batches[INCOMING].leaves)
        starts = range(0, len(probes), self._groups.branches)
        waves = [probes[start : start + self._groups.branches] for start in starts]
        answers: list[Answer] = []
        try:
            self._statistics.begin_round(evaluator.layers)
            with evaluator.layers.one_round(len(probes), self._groups.branches):
                for start, wave in zip(starts, waves, strict=True):
                    _require_exchangeable(wave)
                    answers += self._answer_wave(wave, first + start, evaluator)
        except RuntimeError:
            self._tell_why()
            raise
        for wave in waves:
            self._statistics.note(wave)
        return answers

    def at_hand(self) -> AbstractContextManager[None]:
        self.forget_copies()
        has_parts = self.is_sharded and self._groups.data_ranks > 1
        return over_shards(self._groups.gather_over_data if has_parts else None)

    def forget_copies(self) -> None:
        if self.is_sharded:
            reshard(self.module)

    def doubts(self) -> list[Doubt]:
        doubts, self._doubts = self._doubts, []
        self._handed_over = [doubt for doubt in doubts if doubt.is_certain]
        return doubts

    def agree_on(self, value: int) -> int:
        return everyone(value)[0]

    def gather(self, value: Any) -> list[Any]:
        found, n = everyone(value), self._groups.data_ranks
        return [next((v for v in found[i::n] if v is not None), None) for i in range(n)]

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

    def _answer_wave(self, wave: Round, first: int, evaluator: Evaluator) -> list[Answer]:
        """Answer at most as many probes as there are branches, all at once.

        A single probe is computed by every branch on the same batch: nothing to gather.
        """
        own = self.branch % len(wave)
        probe, number = wave[own], first + own
        sharing = self._sharing(wave, probe, evaluator)
        self._launch(wave, probe, number, sharing, evaluator)
        tell = partial(self._statistics.tell, evaluator.layers)
        loss = evaluator.backward(probe, number, self._pass(sharing, tell))
        answers = self._collect(wave, loss, sharing, evaluator)
        if Sharing.GATHER in sharing and not self._foreign.is_ruled_out:
            examine = partial(self._foreign.examine, probe, number, evaluator, self._alone())
            equal = _are_equal([answer.gradient for answer in answers])
            self._doubts.append(Doubt(equal, examine, is_certain=False))
        return answers

    def _sharing(self, wave: Round, probe: Probe, evaluator: Evaluator) -> Sharing:
        averages = self._groups.data_ranks > 1 and probe.mode.backward
        gather = Sharing.GATHER if len(wave) > 1 else Sharing.NOTHING
        average = averages and not evaluator.is_local(probe)
        return gather | (Sharing.AVERAGE if average else Sharing.NOTHING)

    def _launch(
        self, wave: Round, probe: Probe, number: int, sharing: Sharing, evaluator: Evaluator
    ) -> None:
        """Agree with the other ranks on where this pass starts, and get ready to exchange."""
        self._statistics.prepare(wave)
        if sharing and self._has_news:
            self._follow(wave, sharing, evaluator)
        if sharing and not self._buckets_are_final:
            settle_buckets(self.exchange, probe, number, evaluator, self._pass(Sharing.AVERAGE))
            self._buckets_are_final = True
        self.exchange.begin(sharing)

    def _collect(
        self, wave: Round, loss: Tensor, sharing: Sharing, evaluator: Evaluator
    ) -> list[Answer]:
        """Every branch's gradient and loss, on every rank."""
        alone = not sharing and self._groups.data_ranks == 1
        gathers = Sharing.GATHER in sharing  # where not, the mark is on its way with the loss
        news = self._statistics.tell(evaluator.layers) if gathers else None
        with EXCHANGE:
            gradients = (
                self.exchange.collect(evaluator, len(wave), news or self._mark)
                if sharing
                else [evaluator.taken()]
            )
        losses = [loss] if alone else self.exchange.losses(len(wave))
        if not alone:
            self._doubts.append(self._agreement.doubt_about(self.exchange.marks()))
        if self._statistics.has_news:  # before replicas are compared, in which these may differ
            self._tell_why()  # waits for the marks, once
            self._statistics.take_up()
        self._check(evaluator.weights, exchanges=bool(sharing))
        return [evaluator.answer(*found) for found in zip(wave, gradients, losses, strict=True)]

    def _pass(self, sharing: Sharing, tell: Tell = lambda: None) -> ExchangedPass:
        announces = bool(sharing) or self._groups.data_ranks > 1
        return ExchangedPass(self.exchange, self.model, sharing, announces, tell)

    def _alone(self) -> ExchangedPass:
        return ExchangedPass(self.exchange, self.model, Sharing.NOTHING, announces=False)

    def _check(self, weights: Weights, *, exchanges: bool) -> None:
        steady = self._statistics.steady
        if not self._has_news:
            self._agreement.check(weights, steady, self._mark, exchanges=exchanges)
            return
        # Nothing was exchanged since, so that the others do not know.
        with self._trained.as_agreed() as (agreed, _):
            have_all = self._agreement.check(agreed, steady, ChangeMark(), exchanges=False)
        if have_all:
            self._take_up(weights)

    def _follow(self, wave: Round, sharing: Sharing, evaluator: Evaluator) -> None:
        """Tell the others that other parameters are trained now, and exchange those from now on.

        The others may not know of it, and are about to exchange what was agreed on: this rank takes
        part in that, with zeros.
        """
        for part in [sharing] if self._buckets_are_final else [Sharing.AVERAGE, sharing]:
            self.exchange.begin(part)
            with self._trained.as_agreed() as (weights, trained):
                loss = self.model.zero_loss(trained)
                self.exchange.announce(loss.detach(), ChangeMark())
                loss.backward()
                known = dataclasses.replace(evaluator, weights=weights)
                self.exchange.collect(known, len(wave), ChangeMark())
        self.exchange.losses(len(wave))
        self._agreement.have_all_changed(self.exchange.marks())
        self._take_up(evaluator.weights)

    def _take_up(self, weights: Weights) -> None:
        """Exchange what is trained now; all ranks call it.

        Raises:
            RuntimeError: On every rank, if it is not the same on all of them.
            ValueError: On every rank, if a parameter does not belong to the model.
        """
        require_same_parameters(self.module, weights)
        self._open_again()
        self._trained.agree(weights)
        self._has_news = False

    def _open_again(self) -> None:
        require_same_model(self.module)
        known = set(self._trained.names)
        self._trained.renew_names()
        self._statistics.sync()
        self._statistics.renew()
        confine_to_branch(self.module, self._groups)
        added = [p for p in self._trained.names if p not in known]
        self._route.copy([*added, *self.module.buffers()])
        self.exchange = self._route.open_again(self.exchange, self.model)
        self._buckets_are_final = self._route.keeps_its_buckets
        self._agreement.renew()

    def _tell_why(self) -> None:
        """Raise what ranks said before one of them was lost."""
        for doubt in [*self._handed_over, *self._doubts]:
            if doubt.is_certain and doubt.flag:
                doubt.refuse()


def _are_equal(gradients: list[Vector]) -> Tensor:
    """Whether all gradients have the same norm, and a good one: a flag on the device."""
    cosine(*gradients[:2])  # which the step's record has: their norms are found on the way
    compute_norms(gradients)
    norms = torch.stack([g.norm for g in gradients])
    return (norms.amin() == norms.amax()) & (norms[0] > 0) & norms[0].isfinite()


def _require_exchangeable(wave: Round) -> None:
    if len(wave) > 1 and any(probe.observe or not probe.mode.backward for probe in wave):
        raise RuntimeError(
            "a probe with observe, or without a backward pass, must be alone in its round: the "
            "other ranks would not learn what it saw; yield it in a round of its own"
        )
