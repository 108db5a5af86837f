"""Short editions: a rank that dies or hangs is noticed, and named with step and cause."""

from __future__ import annotations

import pytest

from tools.stress.peers import peers

pytestmark = [pytest.mark.dist, pytest.mark.slow]

SOON = 5.0  # seconds; a busy machine is slow, the recorded figures are in results/reliability


def test_ranks_that_die_or_hang_are_noticed_and_told_by_the_others() -> None:
    summary = peers(4)
    assert summary["noticed_and_told"] == 4
    assert summary["seconds_after_a_death"]["most"] < SOON
    assert summary["seconds_after_the_timeout_of_a_hang"]["most"] < SOON
