"""The trials of `tools.stress.kill` with runs whose weights are sharded: all ranks save.

    python -m tools.stress.kill_sharded --trials 100 --json results/reliability/kill_sharded.json

One rank or all are killed; the others find themselves alone. SAM runs on two ranks with a half of
the weights each, SAMPa on two branches of two.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tests.lab.training.runs import tiny_run
from tools.stress.kill import Target, kill
from tools.stress.records import Summary, main

SHARD: dict[str, Any] = {"shard": True}


def targets() -> dict[str, Target]:
    """The runs that are killed."""
    return {
        f"{method} on {world}": Target(
            tiny_run(method=method), (world,), SHARD, {"world": world, **SHARD}
        )
        for method, world in (("sam", 2), ("sampa", 4))
    }


def kill_sharded(trials: int, seed: int = 0, log: Path | None = None) -> Summary:
    """Carry out the trials."""
    return kill(trials, seed, log, targets)


if __name__ == "__main__":
    sys.exit(
        main("kill_sharded", __doc__, 100, kill_sharded, lambda s: s["identical"] == s["trials"])
    )
