"""What goes wrong in a step ends all ranks quickly, with a message that says what to do."""

from __future__ import annotations

import copy
import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sampa
from sampa.method import MethodDefaults, Rounds
from tests.distributed.failing import messages, rank
from tests.distributed.training import Run, Session, cross_entropy
from tests.problems import Batch, small_net
from tests.ranks import run_ranks

pytestmark = pytest.mark.dist


def call_the_raw_model(**options: Any) -> None:
    session = Session(Run(**options))
    session.loss_fn = lambda batch: cross_entropy(session.model, batch)
    session.advance(5)


def test_a_loss_that_calls_the_raw_model_is_told_what_to_call() -> None:
    for message in messages(2, call_the_raw_model):
        assert "loss_fn must call executor.model, not the model" in message


def fail_on_one_rank(model: nn.Module, batch: Batch) -> Tensor:
    if rank() == 1 and batch[0].flatten()[0] > 0:
        raise KeyError("a mistake in loss_fn")
    return cross_entropy(model, batch)


def train_quietly(run: Run) -> None:
    Session(run).advance(run.steps)


def test_an_exception_on_one_rank_ends_the_other_within_seconds() -> None:
    survivor, culprit = messages(2, train_quietly, Run(loss=fail_on_one_rank))
    assert "a mistake in loss_fn" in culprit
    assert "rank 0 (branch 0, data 0), step " in survivor


class SlowStart(nn.Module):
    """Rank 1 is away for a while in its first pass."""

    def __init__(self) -> None:
        super().__init__()
        self.net = small_net()
        self.is_first = True

    def forward(self, x: Tensor) -> Tensor:
        if self.is_first and rank() == 1:
            time.sleep(6)
        self.is_first = False
        return self.net(x)


def test_a_rank_that_does_not_respond_is_given_up_after_the_timeout() -> None:
    waiting = messages(2, train_quietly, Run(steps=3, net=SlowStart, distribute={"timeout": 4}))[0]
    assert "rank 0 (branch 0, data 0), step " in waiting
    assert "was silent for longer than the timeout of sampa.distribute" in waiting


def end_early_on_one_rank(branches: int) -> None:
    make = sampa.SAMPa if branches == 2 else sampa.SAM
    session = Session(Run(make=make, distribute={"branches": branches, "timeout": 4}))
    session.advance(5 + rank())
    session.executor.model.eval()


@pytest.mark.parametrize("branches", [1, 2])
def test_a_loader_that_ends_early_on_one_rank_is_an_error_on_all(branches: int) -> None:
    """Data sets of different lengths come to the same."""
    for message in messages(2, end_early_on_one_rank, branches):
        assert "lost the other ranks: one of them stopped, made another number of" in message


@dataclass(frozen=True)
class Observing(MethodDefaults):
    """Looks at one pass of a round of two."""

    def rounds(self, context: sampa.Context, state: None) -> Rounds:
        seen: list[sampa.Loss] = []
        a, _ = yield (
            sampa.Probe(observe=seen.append),
            sampa.Probe(mode=sampa.Mode(statistics=False)),
        )
        return sampa.Update(a)


def observing(base: torch.optim.Optimizer, **options: Any) -> sampa.SharpnessAware:
    return sampa.SharpnessAware(base, Observing(), **options)


def test_a_probe_that_only_one_branch_would_observe_is_refused() -> None:
    for message in messages(2, train_quietly, Run(make=observing)):
        assert "a probe with observe, or without a backward pass, must be alone" in message


def refusals(duplicate: Callable[[Any], Any], owner: Callable[[Session], Any]) -> str:
    try:
        duplicate(owner(Session(Run())))
    except TypeError as error:
        return str(error)
    return "copied"


def executor_of(session: Session) -> Any:
    return session.executor


def wrapped_model_of(session: Session) -> Any:
    return session.executor.model


def optimizer_of(session: Session) -> Any:
    return session.optimizer


@pytest.mark.parametrize("duplicate", [copy.deepcopy, pickle.dumps])
@pytest.mark.parametrize("owner", [executor_of, wrapped_model_of, optimizer_of])
def test_an_executor_cannot_be_copied_or_pickled(
    owner: Callable[[Session], Any], duplicate: Callable[[Any], Any]
) -> None:
    for message in run_ranks(2, refusals, duplicate, owner):
        assert "an executor on several ranks cannot be copied or pickled" in message
        assert "save optimizer.state_dict() and model.state_dict() instead" in message
