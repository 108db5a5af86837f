"""What a rank keeps in memory: sharded, SAMPa on two branches takes less than SAM on one device."""

from __future__ import annotations

import json

import pytest

from tests.ranks import run_ranks
from tools.shard_memory import OPTIMIZERS, PAGE, RECORD, SETTINGS, peak_of_a_step, updated

ALONE, SHARDED = "SAM, one device", "SAMPa, 2 × 2 sharded"


def test_the_page_shows_the_record() -> None:
    page = PAGE.read_text()
    assert updated(page) == page


@pytest.mark.parametrize("base", OPTIMIZERS)
def test_sampa_on_two_by_two_ranks_keeps_less_than_sam_on_one_device(base: str) -> None:
    peaks = json.loads(RECORD.read_text())["peaks"]
    assert peaks[SHARDED][base] < peaks[ALONE][base] < peaks["SAMPa, 2 × 1"][base]


@pytest.mark.slow
@pytest.mark.dist
def test_the_recorded_peaks_are_counted_again() -> None:
    base, recorded = "adamw-fused", json.loads(RECORD.read_text())["peaks"]
    for name in (ALONE, SHARDED):
        found = run_ranks(SETTINGS[name].ranks, peak_of_a_step, SETTINGS[name], base)
        assert max(found) == pytest.approx(recorded[name][base], abs=0.05)
