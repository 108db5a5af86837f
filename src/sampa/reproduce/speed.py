"""Time and memory of a step: ratios of interleaved steps on two ranks, and peak bytes of tensors.

The stop watch is `sampa.bench`: a turn of every contender follows one of every other, so that what
slows the machine slows them all. Here are the paper's contenders, and the sessions they meet in.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

import sampa
from sampa.bench.contenders import Bench, Contender, Place, Step, bare_sgd, with_method
from sampa.bench.problems import Problem, detailed_loss
from sampa.bench.rounds import measure, pin_to_core
from sampa.reproduce.memory import peak_bytes
from sampa.reproduce.plan import Scale
from sampa.reproduce.request import Request
from sampa.train.folder import RunFolder, conditions
from sampa.train.launch import end_with_launcher, is_launched, launch, set_threads
from sampa.train.ranks import is_first, rank, wait_for_all, world_size

RANKS = 2
ONE, BOTH = Place.ONE_DEVICE, Place.BRANCHES


def _with(method: str, place: Place = ONE, **options: Any) -> Callable[[Bench], Step]:
    return partial(with_method, method=method, place=place, loss=detailed_loss, **options)


def _batches_of(size: int) -> Callable[[Bench], Step]:
    """SGD on batches of another size than the problem's."""
    return lambda bench: bare_sgd(replace(bench, problem=replace(bench.problem, batch_size=size)))


EFFICIENT = (
    Contender("SAM", ONE, _with("sam")),
    Contender("SAMPa-0.2", BOTH, _with("sampa", BOTH)),
    Contender("LookSAM", ONE, _with("looksam"), steps=5),
    Contender("AE-SAM", ONE, _with("ae-sam"), steps=5),
    Contender("SAF", ONE, _with("saf")),
    Contender("MESA", ONE, _with("mesa")),
    Contender("ESAM", ONE, _with("esam")),
)
TWO_DEVICES = (
    Contender("SAM", ONE, _with("sam")),
    Contender("mSAM (m=2)", BOTH, _with("msam", BOTH, num_shards=2)),
    Contender("SAMPa-0.2", BOTH, _with("sampa", BOTH)),
)
SIZES = (64, 128, 256, 512, 1024, 2048, 4096)
BATCH_SIZES = tuple(Contender(str(n), ONE, _batches_of(n)) for n in SIZES)


@dataclass(frozen=True)
class Session:
    """Contenders that meet on a problem, for some rounds, by scale."""

    contenders: tuple[Contender, ...]
    problems: dict[Scale, Problem]
    rounds: dict[Scale, int]


NETWORKS: dict[Scale, Problem] = {
    "paper": Problem("resnet56", 128),
    "cpu": Problem("resnet20", 128),
    "smoke": Problem("mlp", 8),
}
ROUNDS: dict[Scale, int] = {"paper": 100, "cpu": 15, "smoke": 2}
SESSIONS = {
    "efficiency": Session(EFFICIENT, NETWORKS, ROUNDS),
    "two-devices": Session(TWO_DEVICES, NETWORKS, ROUNDS),
    "batch-time": Session(
        BATCH_SIZES, {**NETWORKS, "cpu": Problem("resnet8", 64)}, {**ROUNDS, "cpu": 5}
    ),
}


def session(name: str, request: Request) -> dict[str, Any]:
    """What a session measured: "seconds" and "bytes" by contender, "about" and "conditions".

    It is measured once, on two processes of this machine.

    Raises:
        OSError: If one of them failed.
    """
    folder = RunFolder(request.folder(f"speed-{name}"))
    if request.scale == "smoke":
        _hold(name, request)
    found = folder.read("measured.json")
    if found is None:
        arguments = ["reproduce", "--measure", name, "--scale", request.scale]
        code = launch(RANKS, [*arguments, "--out", str(request.out)])
        found = folder.read("measured.json")
        if code or found is None:
            raise OSError(f"measuring {name} on {RANKS} processes ended with code {code}")
    return found


def measure_here(name: str, request: Request) -> int:
    """One rank's part of a session.

    Raises:
        ValueError: If this is not one of several ranks.
    """
    if not is_launched():
        raise ValueError(f"--measure needs {RANKS} processes; run sampa reproduce ID instead")
    end_with_launcher()
    set_threads(1)
    pin_to_core(rank())
    _hold(name, request)
    wait_for_all()
    return 0


def _hold(name: str, request: Request) -> None:
    """Let all contenders make their turns, and write down what they took."""
    meeting = SESSIONS[name]
    problem, rounds = meeting.problems[request.scale], meeting.rounds[request.scale]
    sampa.distribute(torch.nn.Linear(1, 1))  # lets the ranks meet before the first turn
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    bench = Bench(problem, "sgd", device, rank(), world_size())
    seconds = measure(bench, meeting.contenders, rounds)
    memory = _peaks(bench, meeting.contenders)
    if is_first():
        folder = RunFolder(request.folder(f"speed-{name}"))
        folder.path.mkdir(parents=True, exist_ok=True)
        about = f"{problem.model}, batches of {problem.batch_size}; {rounds} rounds"
        found = {"about": about, "seconds": seconds, "bytes": memory, "conditions": conditions()}
        folder.write("measured.json", found)


def _peaks(bench: Bench, contenders: Sequence[Contender]) -> dict[str, float]:
    """The peak of the rank that needs most."""
    peaks: list[int] = []
    for contender in contenders:
        takes_part = bench.rank == 0 or contender.place is not ONE
        peaks.append(peak_bytes(contender.make(bench)) if takes_part else 0)
        wait_for_all()
    found = torch.tensor(peaks, dtype=torch.float64)
    if bench.ranks > 1:
        dist.all_reduce(found, op=dist.ReduceOp.MAX)
    return dict(zip([c.name for c in contenders], found.tolist(), strict=True))


def ratios(seconds: dict[str, list[float]], below: str) -> dict[str, dict[int, float]]:
    """For each contender: its time in steps of another, one ratio a round."""
    reference = seconds[below]
    return {
        name: {i: a / b for i, (a, b) in enumerate(zip(times, reference, strict=True))}
        for name, times in seconds.items()
    }


def middle(values: dict[int, float]) -> float:
    return statistics.median(values.values())
