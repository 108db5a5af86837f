"""A disk that is full, and one that fills up, for real: training goes on, nothing is lost."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from sampa.lab.training import checkpoint
from sampa.lab.training.checkpoint import NEWEST
from sampa.lab.training.loop import Trainer
from sampa.lab.training.manifest import CheckpointError
from tests.lab.training.runs import Outcome, carry_out, outcome, tiny_run

SMALL = 600_000  # bytes: a few checkpoints of the tiny run


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own in memory, with room for little."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SMALL}", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a file system")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill(disk: Path) -> Path:
    """Take all the room that is left."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as handle:
        while True:
            try:
                handle.write(bytes(4096))
            except OSError:
                return ballast


def test_a_checkpoint_on_a_full_disk_is_an_error_that_leaves_the_old_ones(small_disk: Path) -> None:
    state = {"model": {"weight": torch.zeros(10_000)}}
    checkpoint.save(small_disk, NEWEST, 1, state)
    fill(small_disk)
    with pytest.raises(CheckpointError, match=r"(?i)no space left.*earlier checkpoints are intact"):
        checkpoint.save(small_disk, NEWEST, 2, state)
    assert checkpoint.load(small_disk / "step-000000001").step == 1
    assert sorted(p.name for p in small_disk.iterdir()) == ["ballast", "step-000000001"]


@pytest.fixture
def full_around_the_end_of_the_first_epoch(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """No room from before the second batch to before the fifth."""
    original = Trainer.batch

    def batch(self: Trainer, position: int) -> Any:
        if position == 1:
            fill(small_disk)
        if position == 4:
            (small_disk / "ballast").unlink()
        return original(self, position)

    monkeypatch.setattr(Trainer, "batch", batch)
    return small_disk / "run"


def test_a_disk_that_is_full_for_a_while_costs_checkpoints_and_nothing_else(
    full_around_the_end_of_the_first_epoch: Path, uninterrupted: Outcome
) -> None:
    out = full_around_the_end_of_the_first_epoch
    carry_out(tiny_run(), out, save_every=1)
    found, same = outcome(out), ("model.safetensors", "optimizer.safetensors", "metrics.jsonl")
    assert {name: found[name] for name in same} == {name: uninterrupted[name] for name in same}


def test_a_run_that_dies_on_a_full_disk_goes_on_from_before(
    full_around_the_end_of_the_first_epoch: Path, uninterrupted: Outcome
) -> None:
    out = full_around_the_end_of_the_first_epoch
    carry_out(tiny_run(), out, save_every=1, limit_steps=4)  # three saves that the disk refused
    assert sorted(p.name for p in (out / "checkpoints").glob("step-*")) == ["step-000000001"]
    carry_out(tiny_run(), out, resume=True)
    found, same = outcome(out), ("model.safetensors", "optimizer.safetensors", "metrics.jsonl")
    assert {name: found[name] for name in same} == {name: uninterrupted[name] for name in same}
