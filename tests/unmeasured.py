"""Processes in which coverage is not measured: for its time, or for the lock that it takes."""

from __future__ import annotations

import os


def unmeasured() -> dict[str, str]:
    """This process's environment, less what lets coverage start in processes of its own."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("COVERAGE_", "COV_"))}
