"""Experiments share runs: what has the same settings is trained once."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sampa.lab.conditions import DIRTY, NUMERICS
from sampa.lab.reproduce import runner
from sampa.lab.reproduce.finished import core_hours_of, line_of, settings_of
from sampa.lab.reproduce.kept import KeptRuns
from sampa.lab.reproduce.plan import Unfinished
from sampa.lab.reproduce.request import Request
from sampa.lab.reproduce.shared import borrow
from sampa.lab.training.folder import RunFolder
from sampa.lab.training.run import Run
from tests.lab.training.runs import carry_out, tiny_run

RUN = tiny_run(method="sam", rhos={"sam": 0.1, "sampa": 0.2}, epochs=1, base_epochs=2)


@pytest.fixture
def request_of(tmp_path: Path) -> Request:
    record = tmp_path / "records" / "table"
    return Request("smoke", tmp_path / "runs", record=record, allow_dirty=True)


@pytest.fixture
def first(request_of: Request) -> Path:
    """A run of another experiment, done."""
    folder = request_of.folder("first") / "sam" / "seed-0"
    carry_out(RUN, folder)
    return folder


def forbid_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "sampa.lab.training.loop.Trainer.fit", lambda self: pytest.fail("it trained")
    )


@pytest.mark.parametrize(
    "same",
    [
        {"name": "other", "about": "other"},
        {"rhos": {"sam": 0.1}},
        {"rhos": {}, "rho": 0.1},
        {"base_epochs": 4},
    ],
)
def test_runs_of_equal_numbers_have_equal_settings(same: dict[str, Any]) -> None:
    assert settings_of(RUN.changed(**same)) == settings_of(RUN)


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 1},
        {"method": "sampa"},
        {"rhos": {"sam": 0.2, "sampa": 0.2}},
        {"rho": 0.2},
        {"lam": 0.1},
        {"epochs": 2},
        {"method_options": {"adaptive": True}},
    ],
)
def test_runs_of_other_numbers_have_other_settings(other: dict[str, Any]) -> None:
    assert settings_of(RUN.changed(**other)) != settings_of(RUN)


def test_more_epochs_of_the_base_optimizer_are_other_settings_for_itself() -> None:
    sgd = RUN.changed(method="sgd")
    assert settings_of(sgd.changed(base_epochs=4)) != settings_of(sgd)
    assert settings_of(sgd.changed(epochs=5)) == settings_of(sgd)


def test_a_run_of_another_experiment_is_not_repeated(
    first: Path, request_of: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid_training(monkeypatch)
    mine = RUN.changed(name="table: row", rhos={"sam": 0.1})
    folder = request_of.folder("table") / "row-sam" / "seed-0"
    results = runner.train_all({folder: mine}, request_of, "table")
    theirs, ours = RunFolder(first), RunFolder(folder)
    assert results[folder] == theirs.result()
    assert ours.run() == mine
    assert ours.metrics() == theirs.metrics()
    assert ours.conditions() == theirs.conditions()
    saved = ours.read("run.json")
    assert saved is not None
    assert saved["made_as"] == "tiny"
    kept = request_of.kept("table")
    assert kept is not None
    assert json.loads(kept.read_text())["made_as"] == "tiny"  # also for those who read the record


def test_it_is_found_in_the_record_of_another_experiment(
    first: Path, request_of: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid_training(monkeypatch)
    file = first.parents[3] / "records/first/runs.jsonl"
    KeptRuns(request_of.folder("first"), file, {first: RUN}, allow_dirty=True).save()
    result = RunFolder(first).result()
    shutil.rmtree(request_of.out)
    folder = request_of.folder("table") / "seed-0"
    assert runner.train_all({folder: RUN}, request_of, "table") == {folder: result}


def note(folder: Path, **conditions: Any) -> None:
    """Change what a run says it was made under."""
    file = folder / "run.json"
    saved = json.loads(file.read_text())
    file.write_text(json.dumps({**saved, "conditions": saved["conditions"] | conditions}))


@pytest.mark.parametrize("allow_dirty", [False, True])
def test_a_run_of_changed_source_is_taken_over_only_if_that_is_allowed(
    first: Path, request_of: Request, monkeypatch: pytest.MonkeyPatch, *, allow_dirty: bool
) -> None:
    monkeypatch.setattr("sampa.lab.conditions.commit", lambda: "0123456789ab")
    note(first, commit=f"0123456789ab{DIRTY}")
    folder = request_of.folder("table") / "seed-0"
    runner.train_all({folder: RUN}, replace(request_of, allow_dirty=allow_dirty), "table")
    assert ("made_as" in json.loads((folder / "run.json").read_text())) == allow_dirty


def test_a_run_on_another_number_of_processes_is_made_again(
    first: Path, request_of: Request
) -> None:
    """SAM on two processes is data parallel: its numbers are others."""
    note(first, processes=2)
    folder = request_of.folder("table") / "seed-0"
    runner.train_all({folder: RUN}, request_of, "table")
    assert "made_as" not in json.loads((folder / "run.json").read_text())
    two = replace(request_of, scale="cpu", devices=2)
    borrowed = two.folder("table") / "seed-0"
    first.parents[1].rename(two.folder("first"))
    borrow({borrowed: RUN}, two)
    assert json.loads((borrowed / "run.json").read_text())["conditions"]["processes"] == 2


def test_core_hours_count_the_processes_of_each_run(first: Path, request_of: Request) -> None:
    second = first.with_name("seed-1")
    carry_out(RUN.changed(seed=1), second)
    note(second, processes=[1, 2])
    for folder in (first, second):
        result = RunFolder(folder).read("result.json")
        assert result is not None
        RunFolder(folder).write("result.json", {**result, "core_seconds": 3600.0})
    assert runner.time_spent([first, second], {}, request_of).startswith("Core-hours: 3.00 for 2")


def test_core_hours_of_runs_that_noted_only_the_clock_are_the_clocks(first: Path) -> None:
    line = line_of(first)
    line["result"] |= {"seconds": 7200.0, "core_seconds": 1800.0}
    assert core_hours_of(line) == 0.5
    del line["result"]["core_seconds"]
    assert core_hours_of(line) == 2


def begin(run: Run, folder: Path) -> None:
    """A run that is interrupted after its first checkpoint."""
    carry_out(run, folder)
    (folder / "result.json").unlink()
    assert any((folder / "checkpoints").iterdir())


def test_an_equal_run_that_was_begun_is_not_made_twice(request_of: Request) -> None:
    folders = [request_of.folder("table") / column / "seed-0" for column in ("a", "b")]
    begin(RUN, folders[1])
    results = runner.train_all(dict.fromkeys(folders, RUN), request_of, "table")
    assert results[folders[0]] == results[folders[1]]
    assert not (folders[1] / "checkpoints").exists()  # of the run that was begun


def test_what_was_begun_with_other_settings_is_not_lost(request_of: Request) -> None:
    folders = [request_of.folder("table") / column / "seed-0" for column in ("a", "b")]
    begin(RUN.changed(batch_size=16), folders[1])
    with pytest.raises(Unfinished, match="b/seed-0 was begun with other settings; remove it"):
        runner.train_all(dict.fromkeys(folders, RUN), request_of, "table")
    assert any((folders[1] / "checkpoints").iterdir())


def test_a_damaged_record_of_another_table_is_told_and_left_alone(
    request_of: Request, capsys: pytest.CaptureFixture[str]
) -> None:
    assert request_of.record is not None
    for name, text in {"other": '{"place": "a/seed', "third": '[1]\n{"result": 3}\n'}.items():
        damaged = request_of.record.with_name(name) / "runs.jsonl"
        damaged.parent.mkdir(parents=True)
        damaged.write_text(text)
    folder = request_of.folder("table") / "seed-0"
    assert runner.train_all({folder: RUN}, request_of, "table")[folder].test
    told = capsys.readouterr().out
    assert told.count("other/runs.jsonl must be JSON, as sampa wrote it: line 1") == 1


def test_runs_of_other_numerics_or_cut_short_are_made_again(
    first: Path, request_of: Request
) -> None:
    def changed(name: str, change: dict[str, Any]) -> None:
        file = first / name
        file.write_text(json.dumps(json.loads(file.read_text()) | change))

    changed("run.json", {"conditions": {"numerics": NUMERICS - 1}})
    folder = request_of.folder("table") / "seed-0"
    runner.train_all({folder: RUN}, request_of, "table")
    assert "made_as" not in json.loads((folder / "run.json").read_text())
    shutil.rmtree(first)
    changed_folder = request_of.folder("other") / "seed-0"
    first = folder
    changed("result.json", {"limited": True})
    runner.train_all({changed_folder: RUN}, request_of, "other")
    assert "made_as" not in json.loads((changed_folder / "run.json").read_text())


def test_equal_runs_of_one_plan_are_made_once(request_of: Request) -> None:
    folders = [request_of.folder("table") / column / "seed-0" for column in ("a", "b")]
    results = runner.train_all(dict.fromkeys(folders, RUN), request_of, "table")
    assert results[folders[0]] == results[folders[1]]
    made = [json.loads((f / "run.json").read_text()) for f in folders]
    assert "made_as" not in made[0]
    assert made[1]["id"] == made[0]["id"]
