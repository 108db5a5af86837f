"""A grid goes on from its committed runs alone: the folders of the runs themselves may be gone."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sampa.lab.conditions import DIRTY, NUMERICS
from sampa.lab.reproduce import kept, runner
from sampa.lab.reproduce.kept import KeptRuns
from sampa.lab.reproduce.request import Request
from sampa.lab.training.folder import RunFolder
from tests.lab.training.runs import carry_out, tiny_run

COMMIT = "0123456789ab"


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KeptRuns:
    """Two runs, kept."""
    monkeypatch.setattr("sampa.lab.conditions.commit", lambda: COMMIT)
    folder = tmp_path / "grid-cpu"
    planned = {folder / m / "seed-0": tiny_run(method=m, epochs=1) for m in ("sgd", "sampa")}
    for place, run in planned.items():
        carry_out(run, place)
    found = KeptRuns(folder, tmp_path / "record" / "runs.jsonl", planned)
    found.save()
    return found


def lines_of(found: KeptRuns) -> list[dict[str, Any]]:
    return [json.loads(line) for line in found.file.read_text(encoding="utf-8").splitlines()]


def restored(found: KeptRuns) -> list[str]:
    results = found.folder.rglob("result.json")
    return sorted(file.parent.relative_to(found.folder).as_posix() for file in results)


def rewrite(found: KeptRuns, lines: list[dict[str, Any]]) -> None:
    found.file.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")


def test_a_fresh_clone_repeats_no_run_that_is_kept(
    tmp_path: Path, made: KeptRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = Request("cpu", tmp_path, record=made.file.parent)
    runs = made.planned
    before = {f: RunFolder(f) for f in runs}
    results = {f: folder.result() for f, folder in before.items()}
    metrics = {f: folder.metrics() for f, folder in before.items()}
    ids = {f: folder.owner() for f, folder in before.items()}
    shutil.rmtree(made.folder)
    kept_before = made.file.read_bytes()

    monkeypatch.setattr("subprocess.Popen", lambda *_, **__: pytest.fail("it started a process"))
    assert runner.train_all(runs, request, "grid") == results
    assert {f: RunFolder(f).metrics() for f in runs} == metrics
    assert {f: RunFolder(f).owner() for f in runs} == ids
    assert made.file.read_bytes() == kept_before


def test_runs_of_other_numerics_are_made_anew(
    made: KeptRuns, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = lines_of(made)
    assert [line["conditions"]["numerics"] for line in lines] == [NUMERICS, NUMERICS]
    lines[0]["conditions"]["numerics"] = NUMERICS - 1
    rewrite(made, lines)
    shutil.rmtree(made.folder)
    made.restore()
    assert "1 runs of other numerics are made anew" in capsys.readouterr().out
    assert restored(made) == [lines[1]["place"]]


def test_runs_by_another_number_of_processes_are_made_anew(
    made: KeptRuns, capsys: pytest.CaptureFixture[str]
) -> None:
    """SAM on two of them is data parallel."""
    shutil.rmtree(made.folder)
    replace(made, processes=2).restore()
    assert "2 runs made by another number of processes are made anew" in capsys.readouterr().out
    assert restored(made) == []


def test_fewer_seeds_lose_none_of_the_others(made: KeptRuns) -> None:
    folder, run = next(iter(made.planned.items()))
    more = replace(made, planned={**made.planned, folder.parent / "seed-1": run.changed(seed=1)})
    carry_out(run.changed(seed=1), folder.parent / "seed-1")
    more.save()
    assert len(lines_of(made)) == 3
    shutil.rmtree(made.folder)
    fewer = replace(made)
    fewer.restore()
    fewer.save()
    assert len(lines_of(made)) == 3
    assert not (folder.parent / "seed-1").exists()


def test_runs_of_another_edition_are_made_anew(
    made: KeptRuns, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the same places, with other settings: the whole command makes the table anew."""
    request = Request("cpu", made.folder.parent, record=made.file.parent)
    runs = {folder: run.changed(batch_size=16) for folder, run in made.planned.items()}
    shutil.rmtree(made.folder)
    monkeypatch.setattr(
        runner, "_train", lambda runs, _: [carry_out(r, f) for f, r in runs.items()]
    )
    assert runner.train_all(runs, request, "grid").keys() == runs.keys()
    assert "2 runs of another edition are made anew" in capsys.readouterr().out
    assert [line["run"]["batch_size"] for line in lines_of(made)] == [16, 16]


def test_other_radii_of_other_methods_are_no_other_edition(made: KeptRuns) -> None:
    folder = made.folder / "sgd" / "seed-0"
    run = made.planned[folder].changed(rhos={"sampa": 0.4})
    shutil.rmtree(made.folder)
    replace(made, planned={folder: run}).restore()
    assert RunFolder(folder).result_of(run) is not None


@pytest.mark.parametrize("keeps_others", [False, True])
def test_what_is_not_planned_is_neither_put_back_nor_kept_but_for_tunings(
    made: KeptRuns, capsys: pytest.CaptureFixture[str], *, keeps_others: bool
) -> None:
    """A tuning asks for its trials step by step: those of a later step must not be lost."""
    before, folder = lines_of(made), made.folder / "sgd" / "seed-0"
    shutil.rmtree(made.folder)
    less = replace(made, planned={folder: made.planned[folder]}, keeps_others=keeps_others)
    less.restore()
    assert restored(made) == ["sgd/seed-0"]
    less.save()
    told = "1 runs of another edition are left out" in capsys.readouterr().out
    assert (lines_of(made), told) == ((before, False) if keeps_others else (before[1:], True))


@pytest.mark.parametrize("allow_dirty", [False, True])
def test_runs_of_changed_source_are_kept_and_put_back_only_if_that_is_allowed(
    made: KeptRuns, *, allow_dirty: bool
) -> None:
    file = made.folder / "sgd" / "seed-0" / "run.json"
    file.write_text(file.read_text().replace(COMMIT, f"{COMMIT}{DIRTY}"))
    places = ["sampa/seed-0", *(["sgd/seed-0"] if allow_dirty else [])]
    found = replace(made, allow_dirty=allow_dirty)
    found.save()
    assert [line["place"] for line in lines_of(made)] == places
    replace(made, allow_dirty=True).save()
    shutil.rmtree(made.folder)
    replace(made, allow_dirty=allow_dirty).restore()
    assert restored(made) == places


@pytest.mark.parametrize("place", ["../elsewhere", "/elsewhere"])
def test_a_place_outside_of_the_folder_is_refused(made: KeptRuns, place: str) -> None:
    lines = lines_of(made)
    lines[0]["place"] = place
    rewrite(made, lines)
    with pytest.raises(ValueError, match="must be a path below"):
        made.restore()


def test_a_run_is_kept_while_others_are_still_made(
    made: KeptRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "SECONDS", 0.05)
    third, run = made.folder / "sam" / "seed-0", tiny_run(method="sam", epochs=1)
    with replace(made, planned={**made.planned, third: run}).growing():
        carry_out(run, third)
        deadline = time.monotonic() + 30
        while len(lines_of(made)) < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert [line["place"] for line in lines_of(made)] == [
            f"{method}/seed-0" for method in ("sam", "sampa", "sgd")
        ]


def test_tunings_are_kept_beside_the_experiments_that_share_them(tmp_path: Path) -> None:
    request = Request("cpu", record=tmp_path / "tab-noise")
    assert request.kept("tab-noise") == tmp_path / "tab-noise" / "runs.jsonl"
    assert request.kept("tuning-noise") == tmp_path / "tuning-noise-cpu.jsonl"
    assert Request("cpu").kept("tab-noise") is None
