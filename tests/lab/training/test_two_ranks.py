"""Two ranks equal one, and survive what happens to either of them."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.lab.training.processes import run_ranks
from tests.lab.training.runs import Outcome, carry_out, outcome, tiny_run

pytestmark = pytest.mark.dist


def test_two_ranks_equal_one_bit_for_bit(tmp_path: Path, uninterrupted: Outcome) -> None:
    assert run_ranks(tiny_run(), tmp_path / "run", world=2) == [0, 0]
    assert outcome(tmp_path / "run") == uninterrupted


@pytest.mark.parametrize(
    ("killed", "point"),
    [
        ((0,), "batch 4"),
        ((1,), "batch 4"),
        ((0, 1), "batch 5"),
        ((0,), "save: before manifest"),
        ((0,), "removal: after rename"),
    ],
)
def test_a_kill_on_two_ranks_changes_nothing(
    killed: tuple[int, ...], point: str, tmp_path: Path, uninterrupted: Outcome
) -> None:
    settings = {"world": 2, "save_every": 1, "keep": 1}
    codes = run_ranks(tiny_run(), tmp_path / "run", kill=killed, at=point, time=1, **settings)
    assert all(codes[rank] == -signal.SIGKILL for rank in killed)
    assert 0 not in codes  # who was left alone says so instead of going on
    assert run_ranks(tiny_run(), tmp_path / "run", resume=True, **settings) == [0, 0]
    assert outcome(tmp_path / "run") == uninterrupted


@pytest.mark.parametrize("asked", [(0,), (1,)])
def test_a_rank_that_is_asked_to_stop_stops_both_at_the_same_batch(
    asked: tuple[int, ...], tmp_path: Path, uninterrupted: Outcome
) -> None:
    stop = {"kill": asked, "at": "batch 3", "with_signal": signal.SIGTERM}
    codes = run_ranks(tiny_run(), tmp_path / "run", world=2, **stop)
    assert codes == [128 + signal.SIGTERM, 128 + signal.SIGTERM]
    saved = {path.name for path in (tmp_path / "run" / "checkpoints").glob("step-*")}
    assert saved == {"step-000000003", "step-000000004"}  # the epoch's, and the one asked for
    assert run_ranks(tiny_run(), tmp_path / "run", world=2, resume=True) == [0, 0]
    assert outcome(tmp_path / "run") == uninterrupted


def test_a_run_begun_on_two_ranks_ends_on_one_bit_for_bit(
    tmp_path: Path, uninterrupted: Outcome, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_ranks(tiny_run(), tmp_path / "run", world=2, limit_steps=4) == [0, 0]
    carry_out(tiny_run(), tmp_path / "run", resume=True)
    assert outcome(tmp_path / "run") == uninterrupted
    assert "warning" not in capsys.readouterr().out


def test_a_run_begun_on_one_rank_ends_on_two_bit_for_bit(
    tmp_path: Path, uninterrupted: Outcome
) -> None:
    carry_out(tiny_run(), tmp_path / "run", limit_steps=2)
    assert run_ranks(tiny_run(), tmp_path / "run", world=2, resume=True) == [0, 0]
    assert outcome(tmp_path / "run") == uninterrupted


def test_batches_cut_otherwise_on_resume_are_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tiny_run(method="sam")  # one probe a round: two ranks share its batch
    assert run_ranks(run, tmp_path / "run", world=2, limit_steps=4) == [0, 0]
    carry_out(run, tmp_path / "run", resume=True)
    assert "now cut into 1 part(s), before it was 2" in capsys.readouterr().out


def test_two_ranks_of_data_resume_bit_for_bit(tmp_path: Path) -> None:
    run = tiny_run(method="sam")
    assert run_ranks(run, tmp_path / "whole", world=2) == [0, 0]
    assert run_ranks(run, tmp_path / "halves", world=2, limit_steps=4) == [0, 0]
    assert run_ranks(run, tmp_path / "halves", world=2, resume=True) == [0, 0]
    assert outcome(tmp_path / "halves") == outcome(tmp_path / "whole")
