"""Buffers that a layer begins to write later, though it was training all along."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sampa
from tests.distributed.test_buffers import net_with_buffers
from tests.distributed.training import Outcome, Run, Session, differences
from tests.ranks import collect_ranks, run_ranks

pytestmark = pytest.mark.dist


class Warmed(nn.Module):
    """Keeps statistics of its inputs from a moment on: in place, by assignment, as integers."""

    mean: Tensor
    largest: Tensor
    batches: Tensor

    def __init__(self, writes: bool = False) -> None:
        super().__init__()
        self.writes = writes
        self.register_buffer("mean", torch.zeros(64))
        self.register_buffer("largest", torch.zeros(64))
        self.register_buffer("batches", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        if self.writes and self.training:
            self.mean.lerp_(x.detach().mean(0), 0.1)
            self.largest = torch.maximum(self.largest, x.detach().amax(0))
            self.batches += 1
        return x - self.mean + 0.01 * self.largest * self.batches


def net_that_warms_up() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), Warmed(), nn.Linear(64, 10))


def set_writing(model: nn.Module, writes: bool) -> None:
    layer = model.get_submodule("1")
    assert isinstance(layer, Warmed)
    layer.writes = writes


def net_with_others() -> nn.Module:
    return nn.Sequential(nn.Flatten(), Warmed(), net_with_buffers())


class Grown(nn.Module):
    """Adds what buffers it has, and counts in those that count passes."""

    def forward(self, x: Tensor) -> Tensor:
        for buffer in self.buffers():
            buffer += self.training
            x = x + 0.1 * buffer
        return x


def net_that_grows() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Sequential(Grown()), nn.Linear(64, 10))


def train_with_late_buffers(run: Run) -> Outcome:
    """A buffer registered after three steps, and a layer with one after six."""
    session = Session(run)
    session.advance(3)
    grown = session.model.get_submodule("1")
    assert isinstance(grown, nn.Sequential)
    grown[0].register_buffer("passes", torch.zeros(()))
    session.advance(3)
    grown.append(Warmed(writes=True))
    session.advance(3)
    return session.outcome()


@pytest.mark.parametrize("shared_memory", [True, False])
def test_buffers_registered_late_are_those_of_one_process(shared_memory: bool) -> None:
    run = Run(net=net_that_grows, distribute={"shared_memory": shared_memory})
    (expected,) = run_ranks(1, train_with_late_buffers, run)
    assert (expected.model["1.0.passes"], expected.model["1.1.batches"]) == (6, 3)
    for outcome in run_ranks(2, train_with_late_buffers, run):
        assert differences(outcome, expected) == []


def train_with_lost_buffers(run: Run) -> Outcome:
    """A buffer that passes write to is removed after three steps."""
    session = Session(run)
    grown = session.model.get_submodule("1.0")
    grown.register_buffer("passes", torch.zeros(()))
    session.advance(3)
    del grown.passes
    session.advance(3)
    return session.outcome()


@pytest.mark.parametrize("shared_memory", [True, False])
def test_a_buffer_that_was_removed_is_forgotten(shared_memory: bool) -> None:
    run = Run(net=net_that_grows, distribute={"shared_memory": shared_memory})
    (expected,) = run_ranks(1, train_with_lost_buffers, run)
    for outcome in run_ranks(2, train_with_lost_buffers, run):
        assert differences(outcome, expected) == []


def train_with_late_writes(run: Run, first: int = 4) -> Outcome:
    """Ten steps: a layer leaves its buffers alone in the first ones, and then does not."""
    session = Session(run)
    session.advance(first)
    set_writing(session.model, True)
    session.advance(10 - first)
    return session.outcome()


@pytest.mark.parametrize(
    ("make", "net", "first", "options"),
    [
        (sampa.SAMPa, net_that_warms_up, 4, {"shared_memory": True}),
        (sampa.SAMPa, net_with_others, 4, {"shared_memory": False}),
        (sampa.AsyncSAM, net_that_warms_up, 4, {"shared_memory": False}),
        # In a round that also compares replicas: each, or the first that exchanges something.
        (sampa.SAMPa, net_that_warms_up, 4, {"shared_memory": True, "check_every": 1}),
        (sampa.SAMPa, net_that_warms_up, 1, {"shared_memory": False}),
    ],
)
def test_buffers_written_late_are_those_of_one_process(
    make: Any, net: Any, first: int, options: dict[str, Any]
) -> None:
    run = Run(net=net, make=make, distribute=options)
    (expected,) = run_ranks(1, train_with_late_writes, run, first)
    assert expected.model["1.batches"] > 0
    for outcome in run_ranks(2, train_with_late_writes, run, first):
        assert differences(outcome, expected) == []


def test_data_ranks_agree_on_buffers_written_late() -> None:
    """Each saw its shard of the batch: those of the first one count."""
    options = {"branches": 1, "check_every": 1}
    run = Run(net=net_that_warms_up, make=sampa.SAM, distribute=options)
    first, second = run_ranks(2, train_with_late_writes, run)
    assert first.model["1.batches"] == 6
    assert differences(first.model, second.model) == []


def write_on_one_rank(distribute: dict[str, Any]) -> str:
    session = Session(Run(net=net_that_warms_up, distribute=distribute))
    session.advance(4)
    rank = session.executor.branch + session.executor.data_rank
    set_writing(session.model, rank == 1)
    session.advance(1)
    return "not noticed"


@pytest.mark.parametrize(("branches", "shared_memory"), [(1, False), (2, False), (2, True)])
def test_buffers_written_late_on_one_rank_are_refused_at_once(
    branches: int, shared_memory: bool
) -> None:
    distribute = {"branches": branches, "shared_memory": shared_memory}
    for outcome in collect_ranks(2, write_on_one_rank, distribute):
        assert "step 4: buffer '1.mean' began to change on rank(s) [1] only" in outcome
