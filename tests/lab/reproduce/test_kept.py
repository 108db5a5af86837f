"""A grid goes on from its committed runs alone: the folders of the runs themselves may be gone."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from sampa.lab.conditions import NUMERICS
from sampa.lab.reproduce import kept, runner
from sampa.lab.reproduce.kept import KeptRuns
from sampa.lab.reproduce.request import Request
from sampa.lab.training.folder import RunFolder
from tests.lab.training.runs import carry_out, tiny_run


@pytest.fixture
def made(tmp_path: Path) -> KeptRuns:
    """Two runs, kept."""
    found = KeptRuns(tmp_path / "grid", tmp_path / "record" / "runs.jsonl")
    for method in ("sgd", "sampa"):
        carry_out(tiny_run(method=method, epochs=1), found.folder / method / "seed-0")
    found.save()
    return found


def lines_of(found: KeptRuns) -> list[dict[str, Any]]:
    return [json.loads(line) for line in found.file.read_text(encoding="utf-8").splitlines()]


def rewrite(found: KeptRuns, lines: list[dict[str, Any]]) -> None:
    found.file.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")


def test_a_fresh_clone_repeats_no_run_that_is_kept(
    tmp_path: Path, made: KeptRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = Request("cpu", tmp_path, record=made.file.parent)
    runs = {
        request.folder("grid") / m / "seed-0": tiny_run(method=m, epochs=1)
        for m in ("sgd", "sampa")
    }
    before = {f: RunFolder(made.folder / f.parent.name / "seed-0") for f in runs}
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
    assert [kept.numerics_of(line) for line in lines] == [NUMERICS, NUMERICS]
    lines[0]["conditions"]["numerics"] = NUMERICS - 1
    rewrite(made, lines)
    shutil.rmtree(made.folder)
    made.restore()
    assert "1 runs of other numerics are made anew" in capsys.readouterr().out
    restored = [f.parent.relative_to(made.folder) for f in made.folder.rglob("result.json")]
    assert restored == [Path(lines[1]["place"])]


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
    with made.growing():
        carry_out(tiny_run(method="sam", epochs=1), made.folder / "sam" / "seed-0")
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
