"""Accuracy over time: steps of runs times the time of a step."""

from __future__ import annotations

from pathlib import Path

import pytest

from sampa.lab.conditions import Conditions
from sampa.lab.files import as_file_name
from sampa.lab.reproduce.catalog import EXPERIMENTS
from sampa.lab.reproduce.over_time import REACHED, TimedCurve, curves_of
from sampa.lab.reproduce.request import Request
from sampa.lab.reproduce.speed import DATA_PARALLEL, ContestResult
from sampa.lab.training.folder import RunFolder


def test_a_curve_reaches_what_it_has_at_the_end_of_an_epoch() -> None:
    curve = TimedCurve([1.0, 2.0, 3.0], [50.0, 70.0, 60.0])
    assert [curve.reaches(a) for a in (40, 60, 70, 71)] == [1.0, 2.0, 2.0, None]


def test_time_is_steps_times_the_median_step() -> None:
    seconds = {"SGD": [6.0], "SAM": [12.0, 900.0, 11.0], DATA_PARALLEL: [7.0], "SAMPa-0.2": [6.5]}
    steps = ContestResult("net", 8, 3, seconds, {}, Conditions())
    epochs = [{"step": 10, "validation_accuracy": 50.0}, {"step": 20, "validation_accuracy": 60.0}]
    found = curves_of(dict.fromkeys([("SGD", 0), ("SAM", 0), ("SAMPa-0.2", 0)], epochs), steps)
    assert found["SAM"][0] == TimedCurve([2.0, 4.0], [50.0, 60.0])
    assert found[DATA_PARALLEL][0] == TimedCurve([7 / 6, 7 / 3], [50.0, 60.0])
    assert found["SAMPa-0.2"][0].minutes == pytest.approx([6.5 / 6, 6.5 / 3])


def test_the_runs_are_those_of_the_full_size_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = Request("smoke", tmp_path, seeds=2)
    EXPERIMENTS["full-cifar10"].outcome(request)
    monkeypatch.setattr(
        "sampa.lab.training.loop.Trainer.fit", lambda self: pytest.fail("it trained")
    )
    outcome = EXPERIMENTS["accuracy-over-time"].outcome(request)
    (chart,) = outcome.charts
    assert [line.label for line in chart.lines] == ["SGD", "SAM", DATA_PARALLEL, "SAMPa-0.2"]
    values = {(e.row, e.column): e for e in outcome.entries}
    sam, whole = values[REACHED, "SAM"], values["minutes of a whole run", "SAM"]
    assert sam.values.keys() == {0, 1}
    assert all(sam.values[seed] <= whole.values[seed] for seed in (0, 1))
    folder = request.folder("full-cifar10") / as_file_name("pooled ResNet SAM") / "seed-1"
    last = RunFolder(folder).metrics()[-1]["validation_accuracy"]
    assert values["final validation accuracy", "SAM"].values[1] == last
