"""Replicas or batches that differ are found, by name, before they do harm."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import sampa
from sampa.batches import walk
from tests.distributed.failing import rank
from tests.distributed.training import Run, Session, cross_entropy
from tests.problems import Batch, image_batches, same_bits
from tests.ranks import collect_ranks, run_ranks

pytestmark = pytest.mark.dist


def flip_one_bit(weight: Tensor) -> None:
    bits = weight.detach().view(torch.int32)
    bits.view(-1)[0] ^= 1 << 20  # a low bit would soon be rounded away


def swap_columns(weight: Tensor) -> None:
    weight.detach()[:, [0, 2]] = weight.detach()[:, [2, 0]]


def train_and_disturb(
    branches: int,
    make: Callable[..., sampa.SharpnessAware],
    at: int,
    disturb: Callable[[Tensor], None] = flip_one_bit,
) -> int:
    """Train with a check every 5 rounds; gives the number of steps if nobody complained."""
    run = Run(make=make, distribute={"branches": branches, "check_every": 5})
    session = Session(run)
    session.advance(at)
    if rank() == 1:
        disturb(session.model.get_parameter("head.weight"))
    try:
        session.advance(20)
    except RuntimeError as error:
        raise RuntimeError(f"after {len(session.losses)} steps") from error
    return len(session.losses)


@pytest.mark.parametrize("at", [0, 7])
@pytest.mark.parametrize(("branches", "make"), [(2, sampa.SAMPa), (1, sampa.SAM)])
def test_a_bit_that_flipped_in_one_replica_is_found_by_name(
    branches: int, make: Callable[..., sampa.SharpnessAware], at: int
) -> None:
    for message in collect_ranks(2, train_and_disturb, branches, make, at, timeout=30):
        assert re.search(
            r"step \d+: the replicas differ: 'head.weight' on rank\(s\) \[1\]", message
        )


def test_a_bit_that_flipped_is_found_within_the_stated_number_of_rounds() -> None:
    for message in collect_ranks(2, train_and_disturb, 2, sampa.SAMPa, 7, timeout=30):
        assert any(f"after {n} steps" in message for n in range(7, 12))


def test_columns_that_changed_places_in_one_replica_are_found_by_name() -> None:
    arguments = 1, sampa.SAM, 0, swap_columns
    for message in collect_ranks(2, train_and_disturb, *arguments, timeout=30):
        assert "step 0: the replicas differ: 'head.weight' on rank(s) [1]" in message


class OwnOrder(Session):
    """A loader that shuffles by itself."""

    def advance(self, steps: int) -> None:
        self.skip(rank())
        super().advance(steps)


def train_in_own_order(branches: int) -> int:
    session = OwnOrder(Run(distribute={"branches": branches}))
    session.advance(5)
    return len(session.losses)


def test_branches_with_different_batches_are_told_at_the_first_exchange() -> None:
    for message in collect_ranks(2, train_in_own_order, 2, timeout=30):
        assert "step 1: the branches got different batches: those of rank(s) [1]" in message
        assert "sampler=executor.sampler(dataset)" in message


def change_samples_at(step: int, change: str, options: dict[str, Any]) -> None:
    """Train, and from some step on have rank 1 see its samples otherwise."""
    session = Session(Run(distribute=options))

    def loss_fn(batch: Batch) -> Tensor:
        return cross_entropy(session.executor.model, batch)

    for number, (x, y) in enumerate(image_batches(20)):
        if rank() == 1 and number >= step:
            x, y = (x.flip(0), y.flip(0)) if change == "order" else (x + 1e-6, y)
        session.optimizer.step(loss_fn, (x, y))


@pytest.mark.parametrize("change", ["order", "augmentation"])
@pytest.mark.parametrize("shared_memory", [True, False])
def test_samples_that_differ_are_told_in_the_very_step(change: str, shared_memory: bool) -> None:
    options = {"shared_memory": shared_memory}
    for message in collect_ranks(2, change_samples_at, 7, change, options, timeout=30):
        assert "step 7: the branches got different batches: those of rank(s) [1]" in message


@dataclass
class Texts:
    words: list[str]
    x: Tensor


# From the inputs and something that the ranks do not agree on to a batch.
BATCHES: dict[str, Callable[[Tensor, int], Any]] = {
    "text": lambda x, other: {"x": x, "text": [f"a cat {other}", "a dog"]},
    "arrays": lambda x, other: (x.numpy(), np.array([1.0, other])),
    "a dataclass": lambda x, other: Texts([f"a cat {other}"], x),
    "indices": lambda x, other: [x, [3, other, 5]],
    "keys": lambda x, other: {"x": x, f"key {other}": None},
}


def refusals(shared_memory: bool) -> dict[str, str]:
    """What is said about each kind of batch, if it differs between the branches from step 2 on."""
    model = torch.nn.Linear(3, 2)
    executor = sampa.distribute(model, shared_memory=shared_memory)

    def loss_fn(batch: Any) -> Tensor:
        leaves = [x for x in walk(batch) if isinstance(x, Tensor | np.ndarray)]
        return executor.model(torch.as_tensor(leaves[0])).square().mean()

    said = {}
    for kind, batch_of in BATCHES.items():
        base = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer = sampa.SAMPa(base, executor=executor)
        for step in range(4):
            batch = batch_of(torch.full((4, 3), float(step)), rank() * (step >= 2))
            try:
                optimizer.step(loss_fn, batch)
            except RuntimeError as error:
                said[kind] = f"{step}: {error}"
                break
    return said


@pytest.mark.parametrize("shared_memory", [True, False])
def test_batches_that_differ_in_anything_but_tensors_are_told(shared_memory: bool) -> None:
    for said in run_ranks(2, refusals, shared_memory):
        assert said.keys() == BATCHES.keys()
        for message in said.values():
            assert message.startswith("2: step 2: the branches got different batches")


def test_data_ranks_may_have_any_batches() -> None:
    assert collect_ranks(2, train_in_own_order, 1, timeout=30) == [5, 5]


def train_with_views(steps: int) -> int:
    """Weights that begin in the middle of eight bytes."""
    session = Session(Run(distribute={"branches": 2, "check_every": 1}))
    bias = session.model.get_parameter("head.bias")
    bias.data = torch.zeros(1 + bias.numel())[1:]
    session.advance(steps)
    return len(session.losses)


def test_weights_that_are_views_at_an_odd_place_can_be_compared() -> None:
    assert run_ranks(2, train_with_views, 3) == [3, 3]


def train_on_refilled_memory(in_place: bool) -> tuple[str, dict[str, Tensor]]:
    """What is said about a batch that is changed while it is held, and the weights with copies."""
    said = "nothing"
    for hold in ("reference", "copy"):
        session = Session(Run(options={"hold": hold}))
        memory = torch.empty_like(next(iter(image_batches(1)))[0])

        def loss_fn(batch: Batch, session: Session = session) -> Tensor:
            if in_place:
                batch[0].mul_(2)
            return cross_entropy(session.executor.model, batch)

        try:
            for x, y in image_batches(6):
                batch = x if in_place else memory.copy_(x)
                session.optimizer.step(loss_fn, (batch, y))
        except RuntimeError as error:
            said = str(error)
    return said, dict(session.model.named_parameters())


@pytest.mark.parametrize("in_place", [False, True])
def test_a_held_batch_that_was_changed_is_told_on_all_ranks(in_place: bool) -> None:
    """As in one process; and copies give the weights that one process has."""
    ((_, expected),) = run_ranks(1, train_on_refilled_memory, in_place)
    for said, weights in run_ranks(2, train_on_refilled_memory, in_place):
        assert "the batch was changed after step had received it" in said
        assert same_bits(weights, expected)
