"""Ranks on accelerators: the bits of one process, gradients through NCCL, while backward runs.

On the CPU the same runs exchange through gloo.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

import sampa
from sampa.execution.parallel.executor import Parallel
from tests.distributed.training import Outcome, Run, Session, differences, train
from tests.gpu.devices import TWO_DEVICES, deterministic
from tests.problems import SmallNet
from tests.ranks import run_ranks

pytestmark = pytest.mark.dist

# As on an accelerator: branches on the CPUs of one machine would share memory otherwise.
NETWORK = {"shared_memory": False, "bucket_mb": 0.001}


def deterministic_run(run: Run) -> Outcome:
    with deterministic(run.device):
        return train(run)


@pytest.mark.parametrize("device", TWO_DEVICES)
@pytest.mark.parametrize("base", ["sgd-momentum", "adamw"])
def test_two_ranks_equal_one_bit_for_bit(base: str, device: str) -> None:
    run = Run(steps=12, base=base, distribute=NETWORK, device=device)
    (expected,) = run_ranks(1, deterministic_run, run)
    for outcome in run_ranks(2, deterministic_run, run):
        assert differences(outcome, expected) == []


@pytest.mark.gpu(4)
def test_two_branches_of_two_data_ranks_agree_with_each_other() -> None:
    run = Run(steps=12, distribute=NETWORK, device="cuda")
    first, *others = run_ranks(4, deterministic_run, run)
    for outcome in others:
        assert differences(outcome.model, first.model) == []


@dataclass(frozen=True)
class Exchanged:
    """What one rank sees of an exchange."""

    backend: str
    gradient_bytes: int
    bytes_at_the_first_layer: int
    parameter_bytes: int
    record: sampa.StepRecord | None


def exchange(run: Run) -> Exchanged:
    """One round of two probes, and how much was sent when the last gradient was computed."""
    session = Session(run)
    assert isinstance(session.executor, Parallel)
    assert isinstance(session.model, SmallNet)
    traffic, sent = session.executor.traffic, [0]
    session.advance(2)  # the first exchange arranges the buckets
    traffic.gradient_bytes = 0

    def look(gradient: Tensor) -> None:
        sent[0] = traffic.gradient_bytes

    # Backward ends with the first layer.
    session.model.conv.weight.register_hook(look)
    session.advance(1)
    size = sum(p.nbytes for p in session.model.parameters())
    return Exchanged(
        dist.get_backend(), traffic.gradient_bytes, sent[0], size, session.optimizer.last
    )


@pytest.fixture(scope="module", params=TWO_DEVICES)
def exchanged(request: pytest.FixtureRequest) -> tuple[str, list[Exchanged]]:
    if request.param == "cuda" and torch.cuda.device_count() < 2:
        pytest.skip("needs 2 accelerators")  # made before the fixture that says so for each test
    run = Run(distribute=NETWORK, device=request.param)
    return request.param, run_ranks(2, exchange, run)


def test_gradients_travel_through_the_network_of_the_device(
    exchanged: tuple[str, list[Exchanged]],
) -> None:
    device, ranks = exchanged
    assert [rank.backend for rank in ranks] == [{"cpu": "gloo", "cuda": "nccl"}[device]] * 2


def test_a_rank_sends_one_gradient_and_learns_both(
    exchanged: tuple[str, list[Exchanged]],
) -> None:
    _, ranks = exchanged
    assert [rank.gradient_bytes for rank in ranks] == [rank.parameter_bytes for rank in ranks]
    assert ranks[0].record == ranks[1].record
    assert ranks[0].record is not None
    assert len(set(ranks[0].record.norms)) == 2


def test_the_exchange_has_begun_before_backward_is_over(
    exchanged: tuple[str, list[Exchanged]],
) -> None:
    """The last layer's gradient is on its way when the first layer's is computed."""
    _, ranks = exchanged
    for rank in ranks:
        assert 0 < rank.bytes_at_the_first_layer < rank.parameter_bytes


# ---- overlap in time, which only an accelerator has ------------------------------------------


def deep_net() -> nn.Module:
    torch.manual_seed(0)
    widths = [64, *[2048] * 8]
    layers = [nn.Linear(a, b) for a, b in pairwise(widths)]
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(2048, 10))


def overlapping_microseconds(run: Run) -> float:
    """How long kernels of NCCL ran beside others, in one step."""
    session = Session(run)
    session.advance(4)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
        session.advance(1)
        torch.cuda.synchronize()
    events: list[Any] = [
        e for e in profiled.events() or [] if e.device_type == torch.autograd.DeviceType.CUDA
    ]
    exchanges = [e.time_range for e in events if "nccl" in e.name.lower()]
    others = [e.time_range for e in events if "nccl" not in e.name.lower()]
    assert exchanges
    assert others
    return sum(max(0, min(a.end, b.end) - max(a.start, b.start)) for a in exchanges for b in others)


@pytest.mark.gpu(2)
def test_the_exchange_runs_beside_backward() -> None:
    run = Run(net=deep_net, distribute={"bucket_mb": 16}, batch_size=512, device="cuda")
    assert min(run_ranks(2, overlapping_microseconds, run)) > 0


@pytest.mark.gpu(2)
def test_more_buckets_do_not_change_a_bit() -> None:
    run = Run(steps=6, net=deep_net, distribute={"bucket_mb": 25}, device="cuda")
    small = replace(run, distribute={"bucket_mb": 1})
    one, other = (run_ranks(2, deterministic_run, r)[0] for r in (run, small))
    assert differences(one, other) == []
