"""A short edition of the kill trials."""

from __future__ import annotations

import pytest

from tools.stress.kill import kill
from tools.stress.kill_sharded import kill_sharded

pytestmark = [pytest.mark.dist, pytest.mark.slow]


def test_runs_killed_at_random_instants_end_as_if_nothing_had_happened() -> None:
    summary = kill(20)
    assert summary["identical"] == summary["trials"] == 20
    assert summary["interrupted"] >= 12  # a busy machine may finish before it is hit
    assert summary["trials_with_two_ranks"] >= 5


def test_sharded_runs_killed_at_random_instants_end_as_if_nothing_had_happened() -> None:
    summary = kill_sharded(6)
    assert summary["identical"] == summary["trials"] == 6
    assert summary["interrupted"] >= 3
