"""`sampa sweep`: runs that exist are kept, what diverged is worst, and the best can be pasted."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from sampa.lab.cli import main
from sampa.lab.commands.arguments import TrainArguments, read_arguments
from sampa.lab.commands.sweep import in_python
from sampa.lab.commands.train import possible_run
from sampa.lab.training.folder import RunFolder
from sampa.lab.training.recipes import find_recipe
from tests.lab.interrupting import Ended, interrupted
from tests.lab.training.runs import carry_out

EXTRA = "--epochs 1 --batch-size 256"
SWEEP = ["sweep", "digits-cpu", f"--extra={EXTRA}"]


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def asked(rho: float, seed: int = 1000) -> TrainArguments:
    options = ["digits-cpu", "--method", "sampa", "--rho", str(rho), "--seed", str(seed)]
    return read_arguments("train", [*options, *shlex.split(EXTRA)])


def diverge(folder: Path, rho: float, seed: int = 1000) -> None:
    """Leave a folder behind as a run that diverged does."""
    made = RunFolder(folder)
    made.open(possible_run(asked(rho, seed)), resume=False)
    made.note_divergence("its loss left all bounds")
    made.close()


def test_what_is_done_is_kept_and_what_diverged_is_worst_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rho in (0.05, 0.1):
        carry_out(possible_run(asked(rho)), tmp_path / f"rho-{rho:g}" / "seed-1000")
    diverge(tmp_path / "rho-0.2" / "seed-1000", 0.2)
    before = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")}
    assert main([*SWEEP, "--rho", "0.05,0.1,0.2", "--out", str(tmp_path)]) == 0
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")} == before
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        "sampa rho 0.05 seed 1000: done before",
        "sampa rho 0.1 seed 1000: done before",
        "sampa rho 0.2 seed 1000: diverged before",
    ]
    (row,) = [line for line in lines if line.strip().startswith("0.2 ")]
    assert row.split() == ["0.2", "1", "diverged", "–"]
    command, python = lines[-2:]
    scores = {
        rho: RunFolder(tmp_path / f"rho-{rho:g}" / "seed-1000").result() for rho in (0.05, 0.1)
    }
    best = max(scores, key=lambda rho: scores[rho].best_validation)  # pyright: ignore[reportOptionalMemberAccess]
    assert f"best: rho {best:g}" in lines
    assert command == (
        f"to train with it: sampa train digits-cpu --method sampa --rho {best:g} {EXTRA}"
    )
    assert python == f"in Python: sampa.SAMPa(base, rho={best})"


def test_the_folder_of_a_run_that_diverged_is_for_that_run_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    diverge(tmp_path / "rho-0.2" / "seed-1000", 0.1)
    assert main([*SWEEP, "--rho", "0.2", "--out", str(tmp_path)]) == 1
    assert "rho must be as in" in capsys.readouterr().err


def test_if_every_point_diverged_nothing_is_chosen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rho in (0.1, 0.2):
        diverge(tmp_path / f"rho-{rho:g}" / "seed-1000", rho)
    assert main([*SWEEP, "--rho", "0.1,0.2", "--out", str(tmp_path)]) == 1
    assert capsys.readouterr().err.endswith("nothing is chosen, every point diverged\n")


@pytest.mark.parametrize(
    ("method", "line"),
    [
        ("sampa", "sampa.SAMPa(base, rho=0.1, lam=0.3)"),
        ("sampa-0.1", "sampa.SAMPa(base, lam=0.3, rho=0.1)"),
        ("sampa+asam", "sampa.METHODS['sampa+asam'](base, rho=0.1, lam=0.3)"),
    ],
)
def test_the_line_of_python_is_the_optimizer_that_was_tried(method: str, line: str) -> None:
    run = find_recipe("digits-cpu").changed(method=method, rho=0.1, lam=0.3)
    assert in_python(run) == line


@pytest.mark.dist
@pytest.mark.slow
def test_a_sweep_that_is_stopped_goes_on(tmp_path: Path) -> None:
    command = ["sweep", "digits-cpu", "--rho", "0.1,0.2"]
    command += ["--out", str(tmp_path), "--extra=--epochs 20"]
    first = tmp_path / "rho-0.1" / "seed-1000"
    ended = interrupted(command, (first / "times.jsonl").exists)  # after an epoch
    assert ended == Ended(130, "", "sampa sweep: stopped; the same command goes on\n")
    assert not (tmp_path / "rho-0.2" / "seed-1000" / "run.json").exists()
    again = [sys.executable, "-m", "sampa", *command, "--jobs", "2"]
    done = subprocess.run(again, capture_output=True, text=True, check=True)
    assert "best: rho 0." in done.stdout
    assert len((first / "times.jsonl").read_text().splitlines()) == 20
