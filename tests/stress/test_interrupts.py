"""A short edition of the interrupts."""

from __future__ import annotations

import pytest

from tools.stress.interrupts import interrupts

pytestmark = pytest.mark.slow


def test_a_step_that_is_interrupted_at_random_instants_is_made_as_a_whole_or_not_at_all() -> None:
    summary = interrupts(5)
    assert summary["left_behind"] == 0
    assert summary["interrupts"] == 500
    assert summary["inside_a_step"] >= 100
