"""What comparing replicas costs: fingerprints of weights every 100 rounds, of batches every step.

    python -m tools.stress.integrity --json results/reliability/integrity.json

On two ranks, the time spent in the checks (waiting for the other rank included) over the time spent
in `optimizer.step`, of the same steps.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

import sampa
from sampa.execution.parallel import executor as parallel
from sampa.execution.parallel.agreement import Agreement
from sampa.lab.models import build
from tests.ranks import run_ranks
from tools.stress.records import Summary, main
from tools.stress.watch import wrap

STEPS = 100  # weights are compared once in them
CASES: dict[str, tuple[str, tuple[int, ...], dict[str, Any]]] = {
    "resnet20, 32 images of 3 x 32 x 32": ("resnet20", (32, 3, 32, 32), {}),
    "conv3, 128 images of 1 x 8 x 8": ("conv3", (128, 1, 8, 8), {"in_channels": 1}),
}


def share(model: str, shape: tuple[int, ...], options: dict[str, Any]) -> list[float]:
    """Seconds in the checks and in all; weights are checked once in the steps."""
    torch.manual_seed(0)
    network = build(model, num_classes=10, **options)
    executor = sampa.distribute(network)
    base = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    optimizer = sampa.SAMPa(base, executor=executor)
    batches = [(torch.randn(shape), torch.randint(0, 10, shape[:1])) for _ in range(4)]
    spent = 0.0

    @contextmanager
    def timed() -> Iterator[None]:
        nonlocal spent
        began = time.perf_counter()
        yield
        spent += time.perf_counter() - began

    checks = ((Agreement, "check"), (Agreement, "doubt_about"), (parallel, "BatchMark"))
    for owner, name in checks:
        wrap(owner, name, timed)

    def loss_fn(batch: tuple[Tensor, Tensor]) -> Tensor:
        return F.cross_entropy(executor.model(batch[0]), batch[1])

    for number in range(3):
        optimizer.step(loss_fn, batches[number])
    spent = 0.0
    began = time.perf_counter()
    for number in range(STEPS):
        optimizer.step(loss_fn, batches[number % 4])
    return [spent, time.perf_counter() - began]


def integrity(trials: int, _seed: int = 0, _log: Path | None = None) -> Summary:
    """Medians over some trials, whose data do not depend on a seed."""
    found = {}
    for name, case in CASES.items():
        shares, seconds = [], []
        for _ in range(trials):
            for checks, total in run_ranks(2, share, *case, timeout=900):
                shares.append(checks / total)
                seconds.append(total / STEPS)
        found[name] = {
            "percent_of_a_step": round(100 * statistics.median(shares), 3),
            "step_milliseconds": round(1000 * statistics.median(seconds), 2),
        }
    return {"check_every": STEPS, "cost": found}


def _is_good(summary: Summary) -> bool:
    return all(case["percent_of_a_step"] < 1 for case in summary["cost"].values())


if __name__ == "__main__":
    sys.exit(main("integrity", __doc__, 3, integrity, _is_good))
