"""Runs that are meant to fail, and what their ranks say."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from tests.ranks import collect_ranks

QUICKLY = 10.0  # seconds


def rank() -> int:
    return int(os.environ["RANK"])


def messages(ranks: int, function: Callable[..., Any], *args: Any) -> list[str]:
    """What each rank ended with; all must end quickly."""
    collect_ranks(1, rank)  # the very first start loads torch, which is not what is timed
    start = time.monotonic()
    outcomes = collect_ranks(ranks, function, *args, timeout=60)
    assert time.monotonic() - start < QUICKLY
    return outcomes
