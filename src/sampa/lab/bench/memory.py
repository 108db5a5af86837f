"""Peak memory of a rank: each contender trains alone, in processes that do nothing else."""

from __future__ import annotations

import resource
import sys

import torch

from sampa.lab.bench.contenders import Bench, Place, contender
from sampa.lab.bench.problems import Problem
from sampa.lab.bench.ranks import on_ranks

STEPS = 12


def peak_memory(problem: Problem, base: str, ranks: int, name: str) -> int:
    """The most bytes that any rank had in use: resident on a CPU, allocated on a GPU."""
    processes = 1 if contender(name).place is Place.ONE_DEVICE else ranks
    return max(on_ranks(_train, processes, problem, base, name))


def _train(
    rank: int, ranks: int, device: torch.device, problem: Problem, base: str, name: str
) -> int:
    step = contender(name).make(Bench(problem, base, device, rank, ranks))
    for _ in range(STEPS):
        step()
    return _peak(device)


def _peak(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
