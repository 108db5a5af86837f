"""A run that is saved and loaded into new processes ends with the bits of one that went on."""

from __future__ import annotations

import io
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sampa
from tests.distributed.training import Outcome, Run, Session, differences
from tests.marks import rest_is_slow
from tests.problems import METHODS, small_net
from tests.ranks import run_ranks

pytestmark = pytest.mark.dist

POSITIONS = (0, 1, 2, 7)  # before the first step, after it (nothing exchanged yet), and later
Saved = dict[int, bytes]


def train_and_save(run: Run) -> tuple[Outcome, Saved]:
    """Train, saving everything on the way as a user would."""
    session, saved = Session(run), {}
    for number in range(run.steps):
        if number in POSITIONS:
            saved[number] = checkpoint(session)
        session.advance(1)
    return end_of(session), saved


def checkpoint(session: Session) -> bytes:
    session.executor.sync_buffers()
    buffer = io.BytesIO()
    parts = {"model": session.model, "optimizer": session.optimizer}
    torch.save({name: part.state_dict() for name, part in parts.items()}, buffer)
    return buffer.getvalue()


def go_on(run: Run, position: int, saved: list[Saved]) -> Outcome:
    """Load into new processes and train to the end; each data rank loads what it saved."""
    session = Session(run)
    for p in session.model.parameters():
        nn.init.constant_(p, 0.5)
    mine = saved[session.executor.data_rank][position]
    loaded: Any = torch.load(io.BytesIO(mine), weights_only=True)
    session.model.load_state_dict(loaded["model"])
    session.optimizer.load_state_dict(loaded["optimizer"])
    last = session.skip(position)
    if run.options.get("save_batch") is False:
        session.optimizer.hold(last)
    session.advance(run.steps - position)
    return end_of(session)


def end_of(session: Session) -> Outcome:
    return replace(session.outcome(), losses=session.losses[-1:], records=session.records[-1:])


@cache
def reference(ranks: int, base: str = "sgd-momentum") -> tuple[list[Outcome], list[Saved]]:
    outcomes, saved = zip(*run_ranks(ranks, train_and_save, Run(steps=12, base=base)), strict=True)
    return list(outcomes), list(saved)


@pytest.mark.parametrize("base", rest_is_slow(["sgd-momentum", "adamw"], "sgd-momentum"))
@pytest.mark.parametrize("position", POSITIONS)
def test_two_ranks_resume_bitwise_from_any_position(position: int, base: str) -> None:
    expected, saved = reference(2, base)
    resumed = run_ranks(2, go_on, Run(steps=12, base=base), position, saved)
    assert differences(resumed, expected) == []


@pytest.mark.parametrize("position", POSITIONS)
def test_a_checkpoint_of_two_ranks_goes_on_bitwise_in_one_process(position: int) -> None:
    resumed = run_ranks(1, go_on, Run(steps=12), position, reference(2)[1])
    assert differences(resumed, reference(1)[0]) == []


@pytest.mark.parametrize("position", POSITIONS)
def test_a_checkpoint_of_one_process_goes_on_bitwise_on_two_ranks(position: int) -> None:
    resumed = run_ranks(2, go_on, Run(steps=12), position, reference(1)[1])
    assert differences(resumed, reference(1)[0] * 2) == []


def test_all_ranks_and_one_process_save_the_same_bytes() -> None:
    (first, second), (alone,) = reference(2)[1], reference(1)[1]
    assert first == second == alone


def resumes_bitwise(run: Run, ranks: int, position: int) -> list[str]:
    results = run_ranks(ranks, train_and_save, run)
    expected, saved = [o for o, _ in results], [s for _, s in results]
    return differences(run_ranks(ranks, go_on, run, position, saved), expected)


@pytest.mark.parametrize("name", rest_is_slow(["sam", "sam-db", "sampa-0.2", "optgd"], "sampa-0.2"))
def test_data_ranks_resume_bitwise(name: str) -> None:
    run = Run(steps=12, make=METHODS[name], distribute={"branches": 1})
    assert resumes_bitwise(run, 2, position=7) == []


class OutOfOrder(nn.Module):
    """Its layers run in another order than they are registered in."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(48, 10)
        self.first = nn.Linear(64, 64)
        self.middle = nn.Linear(64, 48)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.middle(self.first(x.flatten(1)).relu()).relu())


def net_out_of_order() -> nn.Module:
    torch.manual_seed(0)
    return OutOfOrder()


def test_three_data_ranks_resume_bitwise_although_ddp_rearranges_its_buckets() -> None:
    """A sum over three ranks rounds by the place in a bucket, and places change once."""
    run = Run(
        steps=12,
        make=sampa.SAM,
        net=net_out_of_order,
        distribute={"branches": 1},
        batch_size=24,
    )
    assert resumes_bitwise(run, 3, position=7) == []


def test_the_held_batch_may_be_handed_back_instead_of_saved() -> None:
    assert resumes_bitwise(Run(steps=12, options={"save_batch": False}), 2, position=7) == []


def test_the_runs_that_are_compared_end_elsewhere_than_they_start() -> None:
    outcome = reference(2)[0][0]
    assert not torch.equal(outcome.model["head.weight"], small_net().head.weight)
