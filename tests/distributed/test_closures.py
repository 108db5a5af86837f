"""A closure on ranks: gradients travel in its own backward pass."""

from __future__ import annotations

from dataclasses import replace

import pytest
from torch import Tensor

import sampa
from tests.distributed.training import Outcome, Run, Session, differences, parallel, serial
from tests.problems import Batch
from tests.ranks import run_ranks

pytestmark = pytest.mark.dist


def train_with_closures(run: Run) -> Outcome:
    session = Session(run)
    optimizer = session.optimizer

    def backward(batch: Batch) -> Tensor:
        loss = session.loss_fn(batch)
        loss.backward()
        return loss.detach()

    for _ in range(run.steps):
        batch = next(session._batches)
        if optimizer.method.holds_batch:
            loss = optimizer.step(sampa.Closure(backward), batch)
        else:
            loss = optimizer.step(lambda batch=batch: backward(batch))
        session.losses.append(loss)
        session.records.append(optimizer.last)
    return session.outcome()


def test_a_closure_on_two_data_ranks_gives_the_bits_of_loss_fn() -> None:
    run = Run(steps=9, make=sampa.SAM, options={"max_norm": 0.5}, distribute={"branches": 1})
    assert differences(run_ranks(2, train_with_closures, run), parallel(run)) == []


@pytest.mark.parametrize("shared_memory", [True, False])
def test_a_bound_closure_on_two_branches_gives_the_bits_of_one_process(shared_memory: bool) -> None:
    run = Run(steps=9, options={"max_norm": 0.5})
    two = replace(run, distribute={"shared_memory": shared_memory})
    first, second = run_ranks(2, train_with_closures, two)
    assert differences(first, second) == []
    assert differences(first, serial(run)) == []
