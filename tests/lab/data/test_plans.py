"""Which samples make up which batch."""

from __future__ import annotations

import numpy as np
import pytest

from sampa.lab.data.plans import Sequential, Shuffled, require_indices

INDICES = np.arange(100, 203)


def test_an_epoch_has_every_sample_at_most_once() -> None:
    plan = Shuffled(INDICES, 10, seed=0)
    seen = np.concatenate([plan.whole(0, number) for number in range(len(plan))])
    assert len(np.unique(seen)) == len(seen) == 100


def test_an_incomplete_last_batch_is_left_out() -> None:
    assert len(Shuffled(INDICES, 10, seed=0)) == 10


def test_what_is_left_out_changes_with_the_epoch() -> None:
    plan = Shuffled(INDICES, 10, seed=0)
    seen = {int(i) for epoch in range(5) for n in range(10) for i in plan.whole(epoch, n)}
    assert seen == set(INDICES.tolist())


@pytest.mark.parametrize("shards", [1, 2, 5, 10])
def test_the_shards_of_a_batch_make_it_up_in_order(shards: int) -> None:
    whole = Shuffled(INDICES, 10, seed=0).whole(2, 3)
    parts = [Shuffled(INDICES, 10, 0, shard, shards).part(2, 3) for shard in range(shards)]
    assert np.array_equal(np.concatenate(parts), whole)


def test_all_shards_have_as_many_batches() -> None:
    assert {len(Shuffled(INDICES, 10, 0, shard, 5)) for shard in range(5)} == {10}


@pytest.mark.parametrize("shards", [1, 2, 3, 4, 20])
def test_evaluation_shards_see_every_sample_once(shards: int) -> None:
    plans = [Sequential(INDICES, 10, shard, shards) for shard in range(shards)]
    seen = np.concatenate([plan.part(0, n) for plan in plans for n in range(len(plan))])
    assert np.array_equal(np.sort(seen), INDICES)


def test_an_evaluation_batch_is_the_same_with_any_number_of_shards() -> None:
    alone, second = Sequential(INDICES, 10), Sequential(INDICES, 10, shard=1, shards=3)
    assert np.array_equal(second.part(0, 2), alone.part(0, 7))


def test_the_last_evaluation_batch_is_short() -> None:
    plan = Sequential(INDICES, 10)
    assert [len(plan.part(0, number)) for number in range(len(plan))] == [10] * 10 + [3]


def test_a_shard_without_evaluation_batches_has_length_zero() -> None:
    assert len(Sequential(INDICES[:5], 10, shard=1, shards=2)) == 0


@pytest.mark.parametrize("plan", [Shuffled(INDICES, 10, 0), Sequential(INDICES, 10)])
@pytest.mark.parametrize("number", [-1, 11])
def test_a_batch_that_does_not_exist_is_refused(plan: Shuffled | Sequential, number: int) -> None:
    with pytest.raises(IndexError, match=r"batch number must be in \[0, 1[01]\), got"):
        plan.part(0, number)


@pytest.mark.parametrize(
    ("batch_size", "shard", "shards", "message"),
    [
        (0, 0, 1, "batch_size must be between 1 and the 103 samples"),
        (104, 0, 1, "batch_size must be between 1 and the 103 samples"),
        (10, 0, 3, "batch_size must be a multiple of the 3 shards, got 10"),
        (10, 2, 2, r"shard must be in \[0, 2\), got 2"),
        (10, 0, 0, "shards must be >= 1"),
    ],
)
def test_impossible_plans_are_refused(
    batch_size: int, shard: int, shards: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Shuffled(INDICES, batch_size, 0, shard, shards)


def test_a_negative_epoch_is_refused() -> None:
    with pytest.raises(ValueError, match="epoch must be >= 0, got -1"):
        Shuffled(INDICES, 10, 0).part(-1, 0)


@pytest.mark.parametrize("indices", [[0, 3], [-1, 0]])
def test_indices_out_of_range_are_refused(indices: list[int]) -> None:
    with pytest.raises(ValueError, match=r"indices must be in \[0, 3\), got (3|-1)"):
        require_indices(np.array(indices), 3)


@pytest.mark.parametrize("indices", [np.zeros(2), np.zeros((2, 2), int), np.ones(3, bool)])
def test_what_is_no_list_of_integers_is_refused(indices: np.ndarray) -> None:
    with pytest.raises(ValueError, match="indices must be a list of integers"):
        require_indices(indices, 3)
