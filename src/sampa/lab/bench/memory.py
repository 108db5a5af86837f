"""Peak memory of a rank: each contender trains alone, in processes that do nothing else."""

from __future__ import annotations

import resource
import sys

import torch

from sampa.lab.bench.contenders import Placement, contenders
from sampa.lab.bench.ranks import on_ranks
from sampa.lab.bench.workloads import Bench, Workload

STEPS = 12


def peak_memory(workload: Workload, ranks: int, name: str) -> int:
    """The most bytes that any rank had in use: resident on a CPU, allocated on a GPU."""
    processes = 1 if contenders()[name].placement is Placement.ONE_DEVICE else ranks
    return max(on_ranks(_peak, processes, workload, name))


def _peak(bench: Bench, name: str) -> int:
    step = contenders()[name].make(bench)
    for _ in range(STEPS):
        step()
    if bench.device.type == "cuda":
        return torch.cuda.max_memory_allocated(bench.device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
