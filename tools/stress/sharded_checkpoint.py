"""A small checkpoint that two real ranks have written, each its rows.

python -m tools.stress.sharded_checkpoint FOLDER
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import torch
from torch.distributed.tensor import Shard, distribute_tensor

import sampa
from sampa.lab.training import checkpoint
from sampa.lab.training.shards import Shards
from tests.ranks import run_ranks

RANKS = 2
STEP = 20


def write(folder: Path) -> Path:
    """Put a copy of it into a folder; gives the checkpoint's own."""
    path = checkpoint.checkpoint_path(folder, checkpoint.NEWEST, STEP)
    path.mkdir(parents=True)
    for name, content in _contents().items():
        (path / name).write_bytes(content)
    return path


@cache
def _contents() -> dict[str, bytes]:
    """Its files, written by processes of their own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", __name__, folder]
        subprocess.run(command, check=True, cwd=Path(__file__).parents[2])
        return {p.name: p.read_bytes() for p in Path(folder).rglob("*") if p.is_file()}


def save_rows(folder: Path) -> None:
    """What each rank does: five rows are cut into three and two."""
    mesh = sampa.mesh(branches=1)
    whole = torch.arange(15.0).view(5, 3)
    weight, momentum = (distribute_tensor(t, mesh["data"], [Shard(0)]) for t in (whole, -whole))
    state = {
        "model": {"weight": weight, "count": torch.tensor(7)},
        "optimizer": {"state": {"weight": {"momentum": momentum}}, "groups": [{"lr": 0.1}]},
        "loop": {"place": {"position": STEP, "best": float("-inf")}, "metrics_size": 3},
    }
    checkpoint.save(folder, checkpoint.NEWEST, STEP, state, shards=Shards(mesh))


if __name__ == "__main__":
    from tools.stress import sharded_checkpoint  # under the name by which ranks find it

    run_ranks(RANKS, sharded_checkpoint.save_rows, Path(sys.argv[1]))
