"""Random words belong to a key and a position, and to nothing else."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from sampa.lab.data.draws import epoch_order, epoch_words, permutation, words


def test_words_are_the_same_everywhere_and_for_ever() -> None:
    assert words(3, 0, "golden").tolist() == GOLDEN


def test_a_word_does_not_depend_on_how_many_are_drawn() -> None:
    assert np.array_equal(words(1000, 7, "a")[:10], words(10, 7, "a"))


def test_every_part_of_the_key_matters() -> None:
    streams = [words(4, 0, "a", 1), words(4, 1, "a", 1), words(4, 0, "b", 1), words(4, 0, "a", 2)]
    assert len({tuple(stream.tolist()) for stream in streams}) == 4


def test_a_permutation_has_every_number_once() -> None:
    assert np.array_equal(np.sort(permutation(1000, 3)), np.arange(1000))


def test_epochs_have_different_orders() -> None:
    assert not np.array_equal(epoch_order(100, 0, 0), epoch_order(100, 0, 1))


def test_order_and_augmentation_are_drawn_from_different_streams() -> None:
    assert not np.array_equal(np.argsort(epoch_words(100, 0, 0)), epoch_order(100, 0, 0))


@pytest.mark.parametrize("kept", [epoch_order, epoch_words])
def test_arrays_that_are_kept_cannot_be_changed(
    kept: Callable[[int, int, int], np.ndarray],
) -> None:
    with pytest.raises(ValueError, match="read-only"):
        kept(10, 0, 0)[0] = 0


GOLDEN = [16243876681648128173, 7137215304369332436, 9118246093816872413]
