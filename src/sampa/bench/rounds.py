"""Interleaved steps: every contender makes a turn in every round, and ratios are paired by round.

The machine may be shared: what slows one turn slows its neighbours too, so a ratio within a round
is worth more than two averages.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from sampa.bench.contenders import Bench, Contender, Place, Step

Seconds = dict[str, list[float]]
"""The time of a step for each contender, one entry per round."""


@dataclass(frozen=True)
class Ratio:
    """The median of paired ratios with its quartiles."""

    median: float
    low: float
    high: float


def ratio(seconds: Seconds, above: str, below: str) -> Ratio:
    """How long a step of `above` takes in steps of `below`."""
    paired = [a / b for a, b in zip(seconds[above], seconds[below], strict=True)]
    low, median, high = statistics.quantiles(paired, n=4)
    return Ratio(median, low, high)


def pin_to_core(rank: int) -> None:
    """One core for each rank, where there are enough and the system lets us choose."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[rank % len(cores)]})


def measure(
    bench: Bench,
    taking_part: Sequence[Contender],
    rounds: int,
    warm_up: int = 3,
    tell: Callable[[int], None] = lambda done: None,
) -> Seconds:
    """Let all contenders make turns, interleaved; every rank calls it and gets the same result."""
    steps = [_prepared(bench, contender) for contender in taking_part]
    times = torch.zeros(rounds, len(steps), dtype=torch.float64)
    for number in range(-warm_up, rounds):
        for column, (contender, step) in enumerate(zip(taking_part, steps, strict=True)):
            elapsed = _turn(bench, contender, step)
            if number >= 0:
                times[number, column] = elapsed / contender.steps
        tell(number + 1)
    if bench.ranks > 1:  # a step lasts until the last rank is done
        dist.all_reduce(times, op=dist.ReduceOp.MAX)
    columns = times.T.tolist()
    return {c.name: column for c, column in zip(taking_part, columns, strict=True)}


def _prepared(bench: Bench, contender: Contender) -> Step | None:
    """This rank's part in it; None if it only waits."""
    takes_part = bench.rank == 0 or contender.place is not Place.ONE_DEVICE
    return contender.make(bench) if takes_part else None


def _turn(bench: Bench, contender: Contender, step: Step | None) -> float:
    if bench.ranks > 1:
        dist.barrier()
    if step is None:
        return 0.0
    start = time.perf_counter()
    for _ in range(contender.steps):
        step()
    _wait_for_device(bench.device)
    return time.perf_counter() - start


def _wait_for_device(device: torch.device) -> None:
    if device.type != "cpu":
        torch.get_device_module(device).synchronize()
