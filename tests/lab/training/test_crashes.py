"""A run killed with -9 at any moment and resumed ends as if nothing had happened, bit for bit."""

from __future__ import annotations

import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from sampa.lab.training import checkpoint
from tests.lab.training.processes import exit_codes, run_ranks, start
from tests.lab.training.runs import TOTAL, Outcome, carry_out, outcome, tiny_run
from tests.marks import rest_is_slow

pytestmark = pytest.mark.dist

POINTS = [
    "save: before model.safetensors",
    "save: before optimizer.safetensors",
    "save: before loop.safetensors",
    "save: before manifest",
    "save: before rename",
    "save: after rename",
    "prune: before removal",
    "removal: after rename",
]


def points_of_a_run(out: Path) -> Counter[str]:
    """How often a run with many checkpoints comes to each named instant."""
    seen: Counter[str] = Counter()
    checkpoint.on_point = lambda point: seen.update([point])
    try:
        carry_out(tiny_run(), out, save_every=1, keep=1)
    finally:
        checkpoint.on_point = None
    return seen


def test_the_points_are_those_where_a_save_or_a_removal_can_be_cut_off(tmp_path: Path) -> None:
    assert list(points_of_a_run(tmp_path / "run")) == POINTS


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("occurrence", rest_is_slow([1, 3], 1))
def test_a_kill_at_a_point_of_saving_changes_nothing(
    point: str, occurrence: int, tmp_path: Path, uninterrupted: Outcome
) -> None:
    settings = {"save_every": 1, "keep": 1}
    codes = run_ranks(
        tiny_run(), tmp_path / "run", kill=(0,), at=point, time=occurrence, **settings
    )
    assert codes == [-signal.SIGKILL]
    carry_out(tiny_run(), tmp_path / "run", resume=True, **settings)
    assert outcome(tmp_path / "run") == uninterrupted


@pytest.mark.parametrize("position", range(TOTAL))
def test_a_kill_before_any_batch_changes_nothing(
    position: int, tmp_path: Path, uninterrupted: Outcome
) -> None:
    codes = run_ranks(tiny_run(), tmp_path / "run", kill=(0,), at=f"batch {position}", save_every=2)
    assert codes == [-signal.SIGKILL]
    carry_out(tiny_run(), tmp_path / "run", resume=True)
    assert outcome(tmp_path / "run") == uninterrupted


@pytest.mark.parametrize("delay", [0.1, 0.2, 0.3, 0.4])
def test_a_kill_at_an_instant_that_nobody_chose_changes_nothing(
    delay: float, tmp_path: Path, uninterrupted: Outcome
) -> None:
    ranks = start(tiny_run(), tmp_path / "run", save_every=1)
    while not (tmp_path / "run").exists():
        time.sleep(0.001)
    time.sleep(delay)
    ranks[0].kill()
    exit_codes(ranks)
    carry_out(tiny_run(), tmp_path / "run", resume=True)
    assert outcome(tmp_path / "run") == uninterrupted


def test_a_second_kill_while_resuming_changes_nothing(
    tmp_path: Path, uninterrupted: Outcome
) -> None:
    for point in ("save: before rename", "batch 3", "removal: after rename"):
        codes = run_ranks(
            tiny_run(), tmp_path / "run", kill=(0,), at=point, save_every=1, resume=True
        )
        assert codes == [-signal.SIGKILL]
    carry_out(tiny_run(), tmp_path / "run", resume=True)
    assert outcome(tmp_path / "run") == uninterrupted


def test_a_kill_between_the_last_checkpoint_and_the_result_changes_nothing(
    tmp_path: Path, uninterrupted: Outcome
) -> None:
    last = TOTAL + 1  # one checkpoint a batch, and one for the best model
    codes = run_ranks(
        tiny_run(), tmp_path / "run", kill=(0,), at="save: after rename", time=last, save_every=1
    )
    assert codes == [-signal.SIGKILL]
    assert not (tmp_path / "run" / "result.json").exists()
    carry_out(tiny_run(), tmp_path / "run", resume=True)
    assert outcome(tmp_path / "run") == uninterrupted


def test_a_checkpoint_is_whole_after_a_kill_at_every_point_of_a_removal(tmp_path: Path) -> None:
    for point in ("prune: before removal", "removal: after rename"):
        out = tmp_path / point.replace(" ", "-")
        run_ranks(tiny_run(), out, kill=(0,), at=point, save_every=1, keep=1)
        found = checkpoint.newest(out / "checkpoints", "step-", report=pytest.fail)
        assert found is not None
        assert found.step == 2
