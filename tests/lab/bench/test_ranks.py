"""Processes of a benchmark: when one fails, nobody waits for the others."""

from __future__ import annotations

import time

import pytest
import torch

from sampa.lab.bench.ranks import on_ranks

pytestmark = pytest.mark.dist
PATIENCE = 120.0  # seconds that a rank would wait


def fail_or_wait(rank: int, _ranks: int, _device: torch.device) -> None:
    if rank == 1:
        raise ValueError("rank 1 cannot go on")
    time.sleep(PATIENCE)


def test_the_first_failure_ends_the_others_and_is_what_is_raised() -> None:
    began = time.monotonic()
    with pytest.raises(ValueError, match="rank 1 cannot go on"):
        on_ranks(fail_or_wait, 2)
    assert time.monotonic() - began < PATIENCE
