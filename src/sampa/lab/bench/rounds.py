"""Interleaved steps: every contender makes a turn in every round, and ratios are paired by round.

The machine may be shared: what slows one turn slows its neighbours too, so a ratio within a round
is worth more than two averages.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from sampa.execution.parallel.executor import Parallel
from sampa.execution.parallel.groups import Traffic
from sampa.lab.bench.contenders import Contender, MethodStep, Placement, Step, contenders
from sampa.lab.bench.meters import meter_of
from sampa.lab.bench.ranks import on_ranks
from sampa.lab.bench.workloads import Bench, Workload
from sampa.lab.progress import Bar

WARM_UP = 1  # rounds; each turn has a step that is not timed besides
LEAST_ROUNDS, MOST_ROUNDS = 5, 200  # where their number is not given ...
TIME_FOR_ROUNDS = 100.0  # ... but the seconds for them; processes need some time to start
MEMORY_STEPS = 12

StepTimes = dict[str, list[float]]
"""The time of a step for each contender, one entry per round."""


@dataclass(frozen=True)
class Counts:
    """What a step does, exactly; the mean where a method's steps differ.

    Attributes:
        rounds: Gradients one after the other.
        probes: Gradients.
        gradient_bytes: Sent by each rank.
        header_bytes: Sent beside them: the loss, and the fingerprint of the batch.
    """

    rounds: float
    probes: float
    gradient_bytes: float = 0
    header_bytes: float = 0

    @property
    def bytes_sent(self) -> float:
        return self.gradient_bytes + self.header_bytes


def measure_steps(
    bench: Bench, names: Sequence[str], rounds: int | None
) -> tuple[StepTimes, dict[str, Counts]]:
    """Let contenders make turns, and count what their steps do; a program for every rank."""
    taking_part = [contenders()[name] for name in names]
    seconds, steps = take_turns(bench, taking_part, rounds)
    made = zip(taking_part, steps, strict=True)
    return seconds, {c.name: _counted(s, c.steps) for c, s in made if isinstance(s, MethodStep)}


def take_turns(
    bench: Bench, taking_part: Sequence[Contender], rounds: int | None
) -> tuple[StepTimes, list[Step | None]]:
    """Prepare contenders and let them make their turns; the first rank shows how far they are.

    Args:
        bench: What is trained, and by whom.
        taking_part: In the order of their turns.
        rounds: As many as take about two minutes if None.

    Returns:
        The seconds of a step on the slowest rank, the same on every rank; and this rank's part in
        each contender, None where it only waits.
    """
    steps = [c.make(bench) if _takes_part(bench, c) else None for c in taking_part]
    pairs = list(zip(taking_part, steps, strict=True))
    asked = rounds or LEAST_ROUNDS
    times: list[list[float]] = []
    began = time.perf_counter()
    with Bar(str(bench.workload), (WARM_UP + asked) * len(steps), shown=bench.rank == 0) as bar:
        while len(times) < WARM_UP + asked:
            if len(times) == WARM_UP:
                began = time.perf_counter()
            times.append([])
            for contender, step in pairs:
                times[-1].append(_turn(bench, contender, step) / contender.steps)
                bar.advance()
            if rounds is None and len(times) > WARM_UP:
                asked = _fitting_rounds(
                    bench, (time.perf_counter() - began) / (len(times) - WARM_UP)
                )
                bar.expect((WARM_UP + asked) * len(steps))
    found = torch.tensor(times[WARM_UP:], dtype=torch.float64, device=bench.device)
    if bench.ranks > 1:  # a step lasts until the last rank is done
        dist.all_reduce(found, op=dist.ReduceOp.MAX)
    names = [contender.name for contender in taking_part]
    return dict(zip(names, found.T.tolist(), strict=True)), steps


def _fitting_rounds(bench: Bench, seconds: float) -> int:
    """How many rounds of these seconds the time is enough for; the same on every rank."""
    longest = torch.tensor([seconds], dtype=torch.float64, device=bench.device)
    if bench.ranks > 1:
        dist.all_reduce(longest, op=dist.ReduceOp.MAX)
    return min(max(LEAST_ROUNDS, round(TIME_FOR_ROUNDS / longest.item())), MOST_ROUNDS)


def _takes_part(bench: Bench, contender: Contender) -> bool:
    return bench.rank == 0 or contender.placement is not Placement.ONE_DEVICE


def _turn(bench: Bench, contender: Contender, step: Step | None) -> float:
    if bench.ranks > 1:
        dist.barrier()
    if step is None:
        return 0.0
    step()  # in training a step follows one like it; here another has used the caches
    meter = meter_of(bench.device)
    meter.wait()
    if bench.ranks > 1 and contender.placement is not Placement.ONE_DEVICE:
        dist.barrier()
    return meter.seconds(lambda: [step() for _ in range(contender.steps)])


def _counted(step: MethodStep, number: int) -> Counts:
    """What a number of further steps do, on average; every rank that takes part makes them."""
    executor = step.optimizer.executor
    traffic = executor.traffic if isinstance(executor, Parallel) else Traffic()
    traffic.gradient_bytes = traffic.header_bytes = 0
    rounds = probes = 0
    for _ in range(number):
        step()
        assert step.optimizer.last is not None
        rounds += step.optimizer.last.rounds
        probes += step.optimizer.last.probes
    totals = (rounds, probes, traffic.gradient_bytes, traffic.header_bytes)
    # A whole number stays one, as in the records.
    return Counts(*(t / number if t % number else t // number for t in totals))


# ---- memory: each contender trains alone, in processes that do nothing else -------------------


def peak_memory(workload: Workload, devices: Sequence[torch.device], name: str) -> int:
    """The most bytes that any rank had in use: resident on a CPU, else as allocated."""
    needed = 1 if contenders()[name].placement is Placement.ONE_DEVICE else len(devices)
    return max(on_ranks(_peak, devices[:needed], workload, name))


def _peak(bench: Bench, name: str) -> int:
    step = contenders()[name].make(bench)
    for _ in range(MEMORY_STEPS):
        step()
    return meter_of(bench.device).peak_bytes()
