"""Core-hours: computed from the runs, and told on each page."""

from __future__ import annotations

from pathlib import Path

import pytest

from sampa.lab.reproduce.catalog import EXPERIMENTS
from sampa.lab.reproduce.core_time import core_hours, hours_in_words, tuning_hours
from sampa.lab.reproduce.request import Request
from sampa.lab.reproduce.settings import images
from sampa.lab.training.folder import RunFolder

TRAINED = [name for name, e in EXPERIMENTS.items() if e.runs("cpu")]
LONGEST = 1.5  # hours of a run: machines may be taken away


def test_a_run_of_the_reduced_edition_takes_four_minutes() -> None:
    sam = images("cpu", None).changed(method="sam")
    assert 60 * core_hours([sam]) == pytest.approx(4)
    sgd = sam.changed(method="sgd")  # half the gradients, twice the epochs
    assert 60 * core_hours([sgd, sam]) == pytest.approx(8)


@pytest.mark.parametrize("name", TRAINED)
def test_no_run_takes_longer_than_a_machine_may_last(name: str) -> None:
    experiment = EXPERIMENTS[name]
    assert max(core_hours([run]) for run in experiment.runs("cpu")) <= LONGEST
    assert experiment.core_hours() >= experiment.seeds * core_hours(experiment.runs("cpu"))


def test_tunings_count_once_more_than_their_first_radii() -> None:
    assert 60 * tuning_hours("noise") == pytest.approx(3 * 4 * 4)


def test_hours_are_told_in_the_unit_that_suits_them() -> None:
    assert hours_in_words(6.54) == "6.5 core-hours"
    assert hours_in_words(0.25) == "15 core-minutes"


def test_a_page_tells_its_core_hours_and_those_of_shared_runs(tmp_path: Path) -> None:
    request = Request("smoke", tmp_path, seeds=1)
    first = EXPERIMENTS["tab-imagenet"].outcome(request)
    folders = [f.parent for f in request.folder("tab-imagenet").rglob("result.json")]
    for folder in folders:
        values = RunFolder(folder).read("result.json")
        assert values is not None
        RunFolder(folder).write("result.json", {**values, "core_seconds": 36.0})
    again = EXPERIMENTS["tab-imagenet"].outcome(request)
    assert "Core-hours: 0.02 for 2 runs." in again.facts
    assert first.entries == again.entries
    other = EXPERIMENTS["tab-cifar10"].outcome(request)
    (told,) = [fact for fact in other.facts if fact.startswith("Core-hours")]
    assert told.endswith("; 0.02 of them for 2 runs shared with other tables.")
