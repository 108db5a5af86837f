"""Processes of a benchmark: when one fails, the others are not waited for."""

from __future__ import annotations

import time

import pytest
import torch

from sampa.lab.bench.ranks import on_ranks
from sampa.lab.bench.workloads import Bench, Workload

pytestmark = pytest.mark.dist
PATIENCE = 120.0  # seconds that a rank would wait


def fail_or_wait(bench: Bench) -> None:
    if bench.rank == 1:
        raise ValueError("rank 1 cannot go on")
    time.sleep(PATIENCE)


def test_the_first_failure_ends_the_others_and_is_what_is_raised() -> None:
    began = time.monotonic()
    with pytest.raises(ValueError, match="rank 1 cannot go on"):
        on_ranks(fail_or_wait, [torch.device("cpu")] * 2, Workload("mlp", 2))
    assert time.monotonic() - began < PATIENCE
