"""The median milliseconds of a step of SAMPa whose gradient is one large piece: FILE.RANK has it.

Rank 1 comes to its exchange a little later than rank 0, as in any real training.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn

import sampa

STEPS = 5
SIDE = 924  # 3.4 MB


def main() -> None:
    executor = sampa.distribute(nn.Linear(SIDE, SIDE), bucket_mb=25, shared_memory=False)
    assert isinstance(executor, sampa.Parallel)
    base = torch.optim.SGD(executor.model.parameters(), lr=1e-3)
    optimizer = sampa.SAMPa(base, executor=executor)

    def loss_fn(batch: Tensor) -> Tensor:
        time.sleep(0.02 * executor.branch)
        return executor.model(batch).square().mean()

    times: list[float] = []
    for _ in range(STEPS + 2):  # the first ones agree on much
        start = time.perf_counter()
        optimizer.step(loss_fn, torch.ones(1, SIDE))
        times.append(1e3 * (time.perf_counter() - start))
    Path(f"{sys.argv[1]}.{executor.branch}").write_text(str(statistics.median(times[2:])))


if __name__ == "__main__":
    main()
