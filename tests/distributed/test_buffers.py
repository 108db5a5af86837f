"""Buffers that passes read and change: on two ranks as in one process, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

import sampa
from tests.distributed.training import Outcome, Run, Session, differences, parallel, serial, train
from tests.ranks import collect_ranks, run_ranks

pytestmark = pytest.mark.dist


class Centered(nn.Module):
    """Subtracts a running mean of its own, which a training pass replaces by a new tensor."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(64))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return x - self.mean


class Codebook(nn.Module):
    """Moves the nearest entry of a table towards each sample, in place, and counts its uses."""

    table: Tensor
    uses: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.randn(5, 16))
        self.register_buffer("uses", torch.zeros(5, dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            nearest = torch.cdist(x, self.table).argmin(1)
            if self.training:
                self.table[nearest] += 0.1 * (x - self.table[nearest])
                self.uses += nearest.bincount(minlength=5)
        return x + 0.1 * self.table[nearest]


def net_with_buffers() -> nn.Module:
    torch.manual_seed(0)
    table = nn.Sequential(spectral_norm(nn.Linear(64, 16)), Codebook())
    table.register_buffer("scale", torch.full((1 << 15,), 2.0))  # large, and never changed
    return nn.Sequential(
        nn.Flatten(), Centered(), table, nn.BatchNorm1d(16, momentum=None), nn.Linear(16, 10)
    )


@pytest.mark.parametrize("shared_memory", [True, False])
@pytest.mark.parametrize("make", [sampa.SAMPa, sampa.AsyncSAM])
def test_buffers_that_passes_read_are_those_of_one_process(make: Any, shared_memory: bool) -> None:
    """All kinds: written in place, replaced, integers, BatchNorm that divides by its count."""
    run = Run(steps=9, net=net_with_buffers, make=make, distribute={"shared_memory": shared_memory})
    expected = serial(run)
    before = dict(net_with_buffers().named_buffers())
    assert [n for n, b in before.items() if torch.equal(b, expected.model[n])] == ["2.scale"]
    assert [differences(outcome, expected) for outcome in parallel(run)] == [[], []]


def train_after_evaluation(run: Run) -> Outcome:
    """Three steps with some layers in evaluation, then six with all of them training."""
    session = Session(run)
    late = session.model.get_submodule("2")
    late.eval()
    session.advance(3)
    late.train()
    session.advance(6)
    return session.outcome()


def test_layers_that_train_later_have_the_buffers_of_one_process() -> None:
    """They leave their buffers alone in the first pass, which tells nothing of later ones."""
    run = Run(net=net_with_buffers)
    (expected,) = run_ranks(1, train_after_evaluation, run)
    assert not torch.equal(expected.model["2.1.table"], net_with_buffers().get_buffer("2.1.table"))
    for outcome in run_ranks(2, train_after_evaluation, run):
        assert differences(outcome, expected) == []


def test_more_probes_than_branches_begin_with_the_same_buffers() -> None:
    """Four probes in two waves: none begins with what another one left."""
    micro_batches = sampa.MicroBatches(count=2)
    run = Run(steps=6, net=net_with_buffers, options={"micro_batches": micro_batches})
    expected = serial(run)
    assert [differences(outcome, expected) for outcome in parallel(run)] == [[], []]


def use_before_evaluation() -> str:
    session = Session(Run(net=net_with_buffers))
    session.advance(3)
    try:
        session.model.state_dict()
    except RuntimeError as error:
        return str(error)
    return "used"


def test_buffers_that_are_behind_are_refused() -> None:
    refused, used = run_ranks(2, use_before_evaluation)
    assert "(or other buffers) of this rank (branch 0, data 0)" in refused
    assert used == "used"


def constant_buffer_differs() -> str:
    session = Session(Run(net=net_with_buffers, distribute={"check_every": 3}))
    session.advance(2)
    if session.executor.branch == 1:
        session.model.get_buffer("2.scale")[7] = 3.0
    session.advance(4)
    return "not noticed"


def test_replicas_with_different_constant_buffers_are_refused() -> None:
    for outcome in collect_ranks(2, constant_buffer_differs):
        assert "the replicas differ: '2.scale' on rank(s) [1]" in outcome


def traffic_of_buffers() -> bool:
    """Whether a model whose buffers never change is free to be saved at any time."""
    session = Session(Run(net=net_with_constant_buffer))
    session.advance(3)
    session.model.state_dict()
    return True


def net_with_constant_buffer() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    model.register_buffer("positions", torch.arange(8))
    return model


def test_a_model_whose_buffers_never_change_needs_no_copying() -> None:
    assert run_ranks(2, traffic_of_buffers) == [True, True]


def test_data_ranks_agree_on_buffers() -> None:
    """Each saw its shard of the batch: as with DDP, those of the first one count."""
    run = Run(steps=5, net=net_with_buffers, make=sampa.SAM, distribute={"branches": 1})
    first, second = run_ranks(2, train, run)
    assert differences(first.model, second.model) == []
