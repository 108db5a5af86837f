"""Methods with one probe a round, on two branches: the result of one process, and a hint."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest

import sampa
from tests.distributed import training
from tests.distributed.training import Outcome, Run, Session, differences, serial
from tests.problems import METHODS
from tests.ranks import run_ranks

pytestmark = pytest.mark.dist

ONE_PROBE = [name for name in METHODS if not name.startswith("sampa")]


def train_and_listen(run: Run) -> tuple[Outcome, list[warnings.WarningMessage]]:
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        return training.train(run), [(str(w.message), w.filename) for w in heard]


@pytest.mark.parametrize("name", ONE_PROBE)
def test_a_method_of_one_probe_a_round_matches_serial_on_two_branches(name: str) -> None:
    run = Run(steps=21, make=METHODS[name])
    expected = serial(run)
    for outcome, _ in run_ranks(2, train_and_listen, run):
        assert differences(outcome, expected) == []


@pytest.mark.parametrize("name", ONE_PROBE)
def test_an_idle_branch_is_pointed_out_once_with_what_to_write(name: str) -> None:
    for _, heard in run_ranks(2, train_and_listen, Run(steps=11, make=METHODS[name])):
        assert len(heard) == 1
        assert "use sampa.distribute(model, branches=1)" in heard[0][0]


def test_the_hint_points_at_the_line_that_calls_step() -> None:
    for _, heard in run_ranks(2, train_and_listen, Run(steps=5, make=sampa.SAM)):
        assert heard[0][1] == training.__file__


def train_with_scheduler(run: Run) -> list[str]:
    """A scheduler wraps `step` once more."""
    import torch

    session = Session(run)
    torch.optim.lr_scheduler.StepLR(session.optimizer, 10)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        session.advance(5)
    return [w.filename for w in heard]


def test_the_hint_points_at_the_same_line_under_a_scheduler() -> None:
    assert run_ranks(2, train_with_scheduler, Run(make=sampa.SAM)) == [[training.__file__]] * 2


def test_sampa_on_two_branches_gives_no_hint() -> None:
    for options in ({}, {"bootstrap": "script"}):
        run = replace(Run(steps=5), options=options)
        assert [heard for _, heard in run_ranks(2, train_and_listen, run)] == [[], []]
