"""Runs whose loss leaves all bounds."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from sampa.lab.cli import main
from sampa.lab.training.divergence import BOUND, IN_A_ROW, Diverged, DivergenceWatch
from tests.lab.training.runs import tiny_run

WILD = ["train", "digits-cpu", "--lr", "1e5", "--epochs", "3", "--threads", "1"]


def watch(per_epoch: int = 10) -> DivergenceWatch:
    return DivergenceWatch(tiny_run(), per_epoch)


def test_a_run_that_diverges_says_so_and_has_no_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert main([*WILD, "--out", str(tmp_path)]) == 1
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert line.startswith("sampa train: digits-cpu sampa seed 0 diverged in epoch 1: the mean lo")
    assert line.endswith("choose a lower --lr than 100000")
    assert captured.out == ""
    assert not (tmp_path / "result.json").exists()
    why = f"sampa train: {json.loads((tmp_path / 'diverged.json').read_text())['reason']}"
    assert why == line
    # A run that is begun again has not diverged yet.
    again = ["train", "digits-cpu", "--limit-steps", "1", "--threads", "1", "--out", str(tmp_path)]
    assert main(again) == 0
    assert not (tmp_path / "diverged.json").exists()


@pytest.mark.dist
@pytest.mark.slow
def test_two_ranks_say_it_once(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sampa", *WILD, "--devices", "2", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "diverged in epoch 1" in line


def test_bad_losses_in_a_row_end_a_run_within_an_epoch() -> None:
    looked = watch()
    for _ in range(IN_A_ROW - 1):
        looked.after_batch(0, math.nan)
    with pytest.raises(Diverged, match=f"in epoch 1: {IN_A_ROW} losses in a row were not finite"):
        looked.after_batch(0, math.inf)


def test_a_few_bad_losses_are_steps_that_were_dropped() -> None:
    looked = watch()
    for epoch in range(2 * IN_A_ROW):
        for number in range(10):
            looked.after_batch(epoch, math.nan if number < 5 else 1.0)
        looked.after_epoch(epoch, math.nan, first=1.0)


def test_an_epoch_of_mostly_bad_losses_ends_a_run() -> None:
    looked = watch()
    for number in range(10):
        looked.after_batch(3, math.nan if number < 6 else 1.0)
    with pytest.raises(Diverged, match="in epoch 4: 6 of 10 losses were not finite"):
        looked.after_epoch(3, math.nan, first=1.0)


def test_a_loss_that_is_not_finite_does_not_hide_that_the_others_are_far_above_the_first() -> None:
    looked = watch()
    for number in range(10):
        looked.after_batch(0, math.nan if number == 4 else 1e6)
    with pytest.raises(Diverged, match=r"in epoch 1: the mean loss is 1e\+06, the first"):
        looked.after_epoch(0, math.nan, first=1.0)


@pytest.mark.parametrize(
    ("mean", "first", "ends"),
    [
        (BOUND * 2.0, 2.0, False),
        (BOUND * 2.1, 2.0, True),
        (BOUND * 0.9, 1e-9, False),  # a first loss of 0 by chance
        (1e30, math.nan, False),  # a run from before this was looked at
    ],
)
def test_a_loss_far_above_the_first_ends_a_run(mean: float, first: float, ends: bool) -> None:
    expected = pytest.raises(Diverged, match="the first of the run was 2")
    with expected if ends else nullcontext():
        watch().after_epoch(0, mean, first)
