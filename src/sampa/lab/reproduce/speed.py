"""Time and memory of a step: ratios of interleaved steps on two ranks, and peak bytes of tensors.

The stop watch is `sampa.lab.bench`: a turn of every contender follows one of every other, so that
what slows the machine slows them all. Here are the paper's contenders, and the contests they
meet in.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from sampa.execution.parallel.groups import is_distributed
from sampa.lab.bench.contenders import Contender, Placement, Step, bare_step, of_method
from sampa.lab.bench.ranks import RANKS, on_ranks
from sampa.lab.bench.rounds import take_turns
from sampa.lab.bench.workloads import Bench, Workload, detailed_loss
from sampa.lab.conditions import Conditions
from sampa.lab.devices import find_device
from sampa.lab.reproduce.memory import peak_bytes
from sampa.lab.reproduce.peer_optimizers import PlainSAM, ScriptSAMPa
from sampa.lab.reproduce.request import Request
from sampa.lab.results.paper import Scale
from sampa.lab.training.fields import read_fields
from sampa.lab.training.folder import RunFolder


def _of(name: str, method: str = "", **options: Any) -> Contender:
    return of_method(name, method or name.lower(), loss=detailed_loss, **options)


def _batches_of(size: int) -> Callable[[Bench], Step]:
    """SGD on batches of another size than the workload's."""

    def make(bench: Bench) -> Step:
        return bare_step(replace(bench, workload=replace(bench.workload, batch_size=size)))

    return make


SAM_STEPS, SAMPA_STEPS = _of("SAM"), _of("SAMPa-0.2", "sampa", placement=Placement.BRANCHES)
MSAM = _of("mSAM (m=2)", "msam", placement=Placement.BRANCHES, num_shards=2)
UNEVEN = (_of("LookSAM", steps=5), _of("AE-SAM", steps=5))  # their steps differ
CONTENDERS = (SAM_STEPS, SAMPA_STEPS, *UNEVEN, _of("SAF"), _of("MESA"), _of("ESAM"))
SIZES = (64, 128, 256, 512, 1024, 2048, 4096)
DATA_PARALLEL = "SAM, data-parallel"
OVER_TIME = (
    Contender("SGD", Placement.ONE_DEVICE, bare_step),
    SAM_STEPS,
    _of(DATA_PARALLEL, "sam", placement=Placement.HALF_BATCHES),
    SAMPA_STEPS,
)
PEER_NAMES = {"SAM": "SAM of davda54/sam", "SAMPa-0.2": "SAMPa-0.2 of the paper's script"}


def _peer(column: str, kind: Callable[..., PlainSAM | ScriptSAMPa], rho: float) -> Contender:
    """Others' steps on the workload."""

    def make(bench: Bench) -> Step:
        model, batches = bench.model(), bench.batches()
        peer = kind(model, bench.optimizer(model), rho)
        return lambda: peer.step(partial(bench.loss, model), next(batches))

    return Contender(PEER_NAMES[column], Placement.ONE_DEVICE, make)


PEERS_TOO = (
    SAM_STEPS,
    _peer("SAM", PlainSAM, 0.05),
    _of("SAMPa-0.2", "sampa"),
    _peer("SAMPa-0.2", ScriptSAMPa, 0.1),
)
BATCH_SIZES = tuple(Contender(str(n), Placement.ONE_DEVICE, _batches_of(n)) for n in SIZES)


@dataclass(frozen=True)
class Contest:
    """Contenders that meet on a workload, for some rounds, by scale.

    Attributes:
        with_memory: Whether their peak memory is counted too, which takes far longer than a step.
    """

    contenders: tuple[Contender, ...]
    workloads: dict[Scale, Workload]
    rounds: dict[Scale, int]
    with_memory: bool = False


WORKLOADS: dict[Scale, Workload] = {
    "paper": Workload("resnet56", 128),
    "cpu": Workload("resnet20", 128),
    "smoke": Workload("mlp", 8),
}
SMALLER: dict[Scale, Workload] = {**WORKLOADS, "cpu": Workload("resnet8", 64)}
FULL_SIZE: dict[Scale, Workload] = {**WORKLOADS, "cpu": Workload("pooled-resnet", 128)}
ROUNDS: dict[Scale, int] = {"paper": 100, "cpu": 15, "smoke": 2}
CONTESTS = {
    "efficiency": Contest(CONTENDERS, WORKLOADS, {**ROUNDS, "cpu": 5}, with_memory=True),
    "two-devices": Contest((SAM_STEPS, MSAM, SAMPA_STEPS), WORKLOADS, ROUNDS),
    "over-time": Contest(OVER_TIME, FULL_SIZE, {**ROUNDS, "cpu": 30}),
    "peers": Contest(PEERS_TOO, WORKLOADS, ROUNDS),
    "batch-time": Contest(BATCH_SIZES, SMALLER, {**ROUNDS, "cpu": 3}),
}


@dataclass(frozen=True)
class ContestResult:
    """What a contest measured.

    Attributes:
        seconds: Of each round, by contender.
        bytes: Peak memory of a step, by contender; empty if it was not counted.
    """

    model: str
    batch_size: int
    rounds: int
    seconds: dict[str, list[float]]
    bytes: dict[str, float]
    conditions: Conditions

    @property
    def about(self) -> str:
        return f"{self.model}, batches of {self.batch_size}; {self.rounds} rounds"

    def ratios(self, below: str) -> dict[str, dict[int, float]]:
        """For each contender: its time in steps of another, one ratio a round."""
        pairs = {n: zip(t, self.seconds[below], strict=True) for n, t in self.seconds.items()}
        return {name: {i: a / b for i, (a, b) in enumerate(p)} for name, p in pairs.items()}


def contest(name: str, request: Request) -> ContestResult:
    """What a contest measured: once, on two processes of this machine (one for tests)."""
    folder = RunFolder(request.folder(f"speed-{name}"))
    found = folder.read("measured.json")
    if found is not None:
        return read_fields(ContestResult, found, "measured.json")
    scale, workload = request.scale, CONTESTS[name].workloads[request.scale]
    if scale == "smoke":
        result = measure_contest(Bench(workload, torch.device("cpu"), 0, 1), name, scale)
    else:
        devices = [find_device(local_rank=rank) for rank in range(RANKS)]
        result = on_ranks(measure_contest, devices, workload, name, scale)[0]
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.write("measured.json", {**asdict(result), "conditions": result.conditions.values})
    return result


def measure_contest(bench: Bench, name: str, scale: Scale) -> ContestResult:
    """Let all contenders of a contest make their turns; a program for every rank."""
    busy = round(os.getloadavg()[0], 1)  # of others, before we begin
    asked, workload = CONTESTS[name], bench.workload
    rounds = asked.rounds[scale]
    seconds, steps = take_turns(bench, asked.contenders, rounds)
    peaks = _peaks(steps, bench.device) if asked.with_memory else []
    return ContestResult(
        model=workload.model,
        batch_size=workload.batch_size,
        rounds=rounds,
        seconds=seconds,
        bytes=dict(zip(seconds, peaks, strict=True)) if peaks else {},
        conditions=Conditions.now().changed({"processes": bench.ranks, "load average": busy}),
    )


def _peaks(steps: Sequence[Step | None], device: torch.device) -> list[float]:
    """The peak of each contender on the rank that needs most."""
    peaks = [0.0 if step is None else float(peak_bytes(step)) for step in steps]
    found = torch.tensor(peaks, dtype=torch.float64, device=device)  # where ranks can exchange it
    if is_distributed():
        dist.all_reduce(found, op=dist.ReduceOp.MAX)
    return found.tolist()
