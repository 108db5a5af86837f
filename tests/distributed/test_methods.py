"""The paper's methods on two branches: the result of one process, and a hint if one is idle."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import sampa
from tests.distributed import training
from tests.distributed.training import Outcome, Run, Session, differences, serial
from tests.marks import rest_is_slow
from tests.problems import METHODS
from tests.ranks import run_ranks

pytestmark = pytest.mark.dist


def train_and_listen(run: Run) -> tuple[Outcome, list[tuple[str, str]]]:
    """Train, and bring back the warnings with the file that they point at."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        outcome = training.train(run)
    return outcome, [(str(w.message), w.filename) for w in heard]


@pytest.mark.parametrize("name", rest_is_slow(METHODS, "sam", "sam-db", "sampa-0.2"))
def test_every_method_of_the_paper_matches_serial_bitwise_on_two_branches(name: str) -> None:
    run = Run(steps=21, make=METHODS[name])
    expected = serial(run)
    for outcome, _ in run_ranks(2, train_and_listen, run):
        assert differences(outcome, expected) == []


@pytest.mark.parametrize("name", ["base", "sam", "sam-db", "optgd", "optsam", "randsam"])
def test_an_idle_branch_is_pointed_out_once_with_what_to_write(name: str) -> None:
    for _, heard in run_ranks(2, train_and_listen, Run(steps=11, make=sampa.METHODS[name])):
        assert len(heard) == 1
        assert "use sampa.distribute(model, branches=1)" in heard[0][0]


@pytest.mark.parametrize("options", [{}, {"bootstrap": "script"}], ids=str)
def test_sampa_keeps_both_branches_busy(options: dict[str, Any]) -> None:
    for _, heard in run_ranks(2, train_and_listen, Run(steps=5, options=options)):
        assert heard == []


def test_the_hint_points_at_the_line_that_calls_step() -> None:
    for _, heard in run_ranks(2, train_and_listen, Run(steps=5, make=sampa.SAM)):
        assert heard[0][1] == training.__file__


def train_with_scheduler(run: Run) -> list[str]:
    session = Session(run)
    torch.optim.lr_scheduler.StepLR(session.optimizer, 10)  # wraps `step` once more
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        session.advance(5)
    return [w.filename for w in heard]


def test_the_hint_points_at_the_same_line_under_a_scheduler() -> None:
    assert run_ranks(2, train_with_scheduler, Run(make=sampa.SAM)) == [[training.__file__]] * 2
