"""Contests of steps: on two real ranks, and what is counted in which of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from sampa.execution.parallel.groups import open_mesh
from sampa.lab.bench.workloads import Bench
from sampa.lab.reproduce import speed
from tests.ranks import run_ranks

CPU = torch.device("cpu")
SMALL = speed.WORKLOADS["smoke"]


def small_contest() -> speed.ContestResult:
    """SAM on the first rank, SAMPa on both; a program for every rank."""
    open_mesh(CPU, 1, timedelta(minutes=5))
    whole = speed.CONTESTS["efficiency"]
    speed.CONTESTS["small"] = replace(whole, contenders=whole.contenders[:2])
    return speed.measure_contest(Bench(SMALL, CPU, dist.get_rank(), 2), "small", "smoke")


@pytest.mark.dist
def test_a_contest_on_two_ranks_times_and_counts_every_contender() -> None:
    first, second = run_ranks(2, small_contest)
    assert list(first.seconds) == list(first.bytes) == ["SAM", "SAMPa-0.2"]
    assert all(len(times) == 2 and min(times) > 0 for times in first.seconds.values())
    assert min(first.bytes.values()) > 0
    assert (first.seconds, first.bytes) == (second.seconds, second.bytes)
    assert first.conditions.values["processes"] == 2


@pytest.mark.parametrize("name", ["two-devices", "batch-time"])
def test_memory_is_only_counted_where_it_is_read(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed, "take_turns", lambda *_: ({}, [lambda: None]))
    monkeypatch.setattr(speed, "peak_bytes", lambda step: pytest.fail("memory was counted"))
    assert not speed.measure_contest(Bench(SMALL, CPU, 0, 1), name, "smoke").bytes


def test_peaks_are_exchanged_on_the_device_of_the_contest(monkeypatch: pytest.MonkeyPatch) -> None:
    """NCCL only knows tensors on the GPU; a tensor without memory stands for one here."""
    exchanged: list[torch.Tensor] = []

    def all_reduce(tensor: torch.Tensor, op: object) -> None:
        exchanged.append(tensor)
        raise RuntimeError("a tensor without memory has no values")

    monkeypatch.setattr(speed, "is_distributed", lambda: True)
    monkeypatch.setattr("torch.distributed.all_reduce", all_reduce)
    with pytest.raises(RuntimeError, match="without memory"):
        speed._peaks([None], torch.device("meta"))
    assert exchanged[0].device.type == "meta"
