"""The mesh of ranks, and the samplers that feed it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import sampa
from tests.ranks import run_ranks
from tests.sockets import listening

pytestmark = pytest.mark.dist

SAMPLES = 24


def layout(branches: int) -> tuple[Any, ...]:
    executor = sampa.distribute(nn.Linear(2, 2), branches=branches)
    assert executor.mesh is not None
    names, shape = executor.mesh.mesh_dim_names, tuple(executor.mesh.shape)
    return names, shape, executor.branch, executor.data_rank


def test_two_ranks_are_two_branches() -> None:
    assert run_ranks(2, layout, 2) == [(("branch", "data"), (2, 1), b, 0) for b in (0, 1)]


def test_one_branch_makes_all_ranks_data_ranks() -> None:
    assert run_ranks(2, layout, 1) == [(("branch", "data"), (1, 2), 0, d) for d in (0, 1)]


def test_four_ranks_are_two_branches_of_two_data_ranks() -> None:
    expected = [(("branch", "data"), (2, 2), b, d) for b in (0, 1) for d in (0, 1)]
    assert run_ranks(4, layout, 2) == expected


def test_plain_python_has_no_mesh() -> None:
    executor = sampa.distribute(nn.Linear(2, 2))
    assert (executor.mesh, executor.branch, executor.data_rank) == (None, 0, 0)


def join_first() -> int:
    torch.distributed.init_process_group("gloo")
    executor = sampa.distribute(nn.Linear(2, 2))
    assert executor.mesh is not None
    return executor.mesh.size()


def test_a_group_that_the_user_opened_is_used() -> None:
    assert run_ranks(2, join_first) == [2, 2]


def distribute_twice() -> bool:
    """As a script that trains one model after another does."""
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    return all(sampa.distribute(model).mesh is not None for model in (first, second))


def test_several_models_may_be_distributed_in_one_process() -> None:
    assert run_ranks(2, distribute_twice) == [True, True]


# ---- samplers --------------------------------------------------------------------------------


def order(epochs: int = 2, shuffle: bool = True) -> list[list[int]]:
    """The samples that this rank sees in each epoch."""
    executor = sampa.distribute(nn.Linear(2, 2))
    dataset = TensorDataset(torch.arange(SAMPLES))
    sampler = executor.sampler(dataset, shuffle=shuffle, seed=3)
    loader = DataLoader(dataset, batch_size=4, sampler=sampler)
    seen = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        seen.append([i for (batch,) in loader for i in batch.tolist()])
    return seen


def test_both_branches_see_the_same_samples_in_the_same_order() -> None:
    first, second = run_ranks(2, order)
    assert first == second


def test_one_process_sees_the_order_of_two_branches() -> None:
    assert run_ranks(1, order)[0] == run_ranks(2, order)[0]


def test_data_ranks_see_disjoint_shards_that_cover_the_data() -> None:
    a0, a1, b0, b1 = (epochs[0] for epochs in run_ranks(4, order))
    assert sorted(a0 + a1) == list(range(SAMPLES))
    assert (a0, a1) == (b0, b1)


def test_set_epoch_reshuffles() -> None:
    for first, second in run_ranks(2, order):
        assert first != second
        assert sorted(first) == sorted(second)


def test_shuffle_can_be_left_out() -> None:
    assert run_ranks(2, order, 1, False) == [[list(range(SAMPLES))]] * 2


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(SAMPLES))


def test_a_data_set_without_length_is_refused_with_what_to_do() -> None:
    executor = sampa.distribute(nn.Linear(2, 2))
    with pytest.raises(TypeError, match="needs a data set with a length, got Stream; let an"):
        executor.sampler(Stream())


@pytest.mark.parametrize("name", ["branches", "bucket_mb", "timeout", "check_every"])
def test_numbers_that_make_no_sense_are_refused_in_plain_python_too(name: str) -> None:
    options: dict[str, Any] = {name: 0}
    with pytest.raises(ValueError, match=f"{name} must be >"):
        sampa.distribute(nn.Linear(2, 2), **options)


# ---- what listens ----------------------------------------------------------------------------


def listening_addresses() -> set[str]:
    """The addresses on which this process accepts connections, as Linux shows them."""
    sampa.distribute(nn.Linear(2, 2))
    return listening(os.getpid())


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc to see open sockets")
def test_ranks_that_meet_on_this_machine_listen_on_it_alone() -> None:
    loopback = "0100007F"
    assert run_ranks(2, listening_addresses) == [{loopback}, {loopback}]
