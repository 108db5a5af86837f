"""Tests of accelerators: those marked `gpu` need one, or as many as the mark says."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def devices_at_hand(request: pytest.FixtureRequest) -> None:
    """Skip what this machine cannot run."""
    mark = request.node.get_closest_marker("gpu")
    if mark is None:
        return
    needed = mark.args[0] if mark.args else 1
    if torch.cuda.device_count() < needed:
        pytest.skip("needs an accelerator" if needed == 1 else f"needs {needed} accelerators")
