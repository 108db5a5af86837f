"""Uninterrupted runs, to compare with; each is made once."""

from __future__ import annotations

import pytest

from tests.lab.training.runs import Outcome, carry_out, outcome, tiny_run


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """What the tiny run comes to if nothing happens."""
    out = tmp_path_factory.mktemp("uninterrupted") / "run"
    carry_out(tiny_run(), out)
    return outcome(out)
