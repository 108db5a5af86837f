"""Training and validation parts are disjoint, complete and exact."""

from __future__ import annotations

import numpy as np
import pytest

from sampa.lab.data.plans import train_validation_split


@pytest.mark.parametrize("n", [1, 7, 100, 50_000])
def test_every_sample_is_in_one_part_only(n: int) -> None:
    train, validation = train_validation_split(n, 0.1, seed=0)
    assert np.array_equal(np.sort(np.concatenate([train, validation])), np.arange(n))


def test_a_tenth_is_held_back_exactly() -> None:
    train, validation = train_validation_split(50_000, 0.1, seed=0)
    assert (len(train), len(validation)) == (45_000, 5_000)


def test_nothing_is_held_back_at_a_share_of_zero() -> None:
    train, validation = train_validation_split(100, 0.0, seed=0)
    assert (len(train), len(validation)) == (100, 0)


def test_the_split_is_a_function_of_its_seed() -> None:
    a, again, b = (train_validation_split(1000, 0.1, seed)[1] for seed in (0, 0, 1))
    assert np.array_equal(a, again)
    assert not np.array_equal(a, b)


def test_both_parts_are_in_order() -> None:
    for part in train_validation_split(1000, 0.3, seed=0):
        assert np.array_equal(part, np.sort(part))


@pytest.mark.parametrize(("n", "share"), [(0, 0.1), (10, 1.0), (10, -0.1)])
def test_impossible_splits_are_refused(n: int, share: float) -> None:
    with pytest.raises(ValueError, match="must be"):
        train_validation_split(n, share, seed=0)
