"""What comparing replicas costs: fingerprints of weights every 100 rounds, of batches every step.

    python -m tools.stress.integrity --json results/reliability/integrity.json

On two ranks, the time spent in the checks (waiting for the other rank included) over the time spent
in `optimizer.step`, of the same steps.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

import sampa
from sampa.execution.parallel import executor as parallel
from sampa.execution.parallel.agreement import Agreement
from sampa.lab.models import build
from tests.ranks import run_ranks
from tools.stress.records import parser, write_record

CASES: dict[str, dict[str, Any]] = {
    "resnet20, 32 images of 3 x 32 x 32": {"model": "resnet20", "shape": (32, 3, 32, 32)},
    "conv3, 128 images of 1 x 8 x 8": {
        "model": "conv3",
        "shape": (128, 1, 8, 8),
        "options": {"in_channels": 1},
    },
}


def share(steps: int, model: str, shape: tuple[int, ...], options: dict[str, Any]) -> list[float]:
    """Seconds in the checks and in all; weights are checked once in the steps."""
    torch.manual_seed(0)
    network = build(model, num_classes=10, **options)
    executor = sampa.distribute(network)
    base = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    optimizer = sampa.SAMPa(base, executor=executor)
    batches = [(torch.randn(shape), torch.randint(0, 10, shape[:1])) for _ in range(4)]
    spent = [0.0]
    timed(spent, Agreement, "check")
    timed(spent, Agreement, "require_same_batches")
    timed(spent, parallel, "batch_mark")

    def loss_fn(batch: tuple[Tensor, Tensor]) -> Tensor:
        return F.cross_entropy(executor.model(batch[0]), batch[1])

    for number in range(3):
        optimizer.step(loss_fn, batches[number])
    spent[0] = 0.0
    began = time.perf_counter()
    for number in range(steps):
        optimizer.step(loss_fn, batches[number % 4])
    return [spent[0], time.perf_counter() - began]


def timed(spent: list[float], owner: Any, name: str) -> None:
    """Add up the seconds of a function, in this process for good."""
    original: Callable[..., Any] = getattr(owner, name)

    def clocked(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        try:
            return original(*args, **kwargs)
        finally:
            spent[0] += time.perf_counter() - began

    setattr(owner, name, clocked)


def measure(repeats: int, steps: int = 100) -> dict[str, Any]:
    found = {}
    for name, case in CASES.items():
        shares, seconds = [], []
        for _ in range(repeats):
            args = (steps, case["model"], case["shape"], case.get("options", {}))
            for checks, total in run_ranks(2, share, *args, timeout=900):
                shares.append(checks / total)
                seconds.append(total / steps)
        found[name] = {
            "percent_of_a_step": round(100 * statistics.median(shares), 3),
            "step_milliseconds": round(1000 * statistics.median(seconds), 2),
        }
    return found


def main(args: Sequence[str] | None = None) -> int:
    options = parser(__doc__ or "", trials=3).parse_args(args)
    found = measure(options.trials)
    print(found)
    write_record("integrity", options, {"check_every": 100, "cost": found})
    return 0 if all(case["percent_of_a_step"] < 1 for case in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
