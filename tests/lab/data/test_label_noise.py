"""Symmetric label noise: how many, which, and to what."""

from __future__ import annotations

import numpy as np
import pytest

from sampa.lab.data.label_noise import symmetric_noise

LABELS = np.arange(10_000) % 10


@pytest.mark.parametrize("share", [0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
def test_exactly_the_share_of_labels_is_wrong(share: float) -> None:
    noisy = symmetric_noise(LABELS, 10, share, seed=0)
    assert np.count_nonzero(noisy != LABELS) == round(share * 10_000)


def test_no_noise_changes_nothing() -> None:
    assert np.array_equal(symmetric_noise(LABELS, 10, 0.0, seed=0), LABELS)


def test_noise_is_a_function_of_its_seed() -> None:
    a, again, b = (symmetric_noise(LABELS, 10, 0.4, seed) for seed in (0, 0, 1))
    assert np.array_equal(a, again)
    assert not np.array_equal(a, b)


def test_a_samples_fate_does_not_depend_on_the_labels_of_others() -> None:
    other = LABELS.copy()
    other[1:] = (other[1:] + 3) % 10
    a, b = symmetric_noise(LABELS, 10, 1.0, seed=0), symmetric_noise(other, 10, 1.0, seed=0)
    assert a[0] == b[0]
    assert np.array_equal((a - LABELS) % 10, (b - other) % 10)


def test_labels_that_are_wrong_at_a_share_stay_so_at_a_larger_one() -> None:
    little, much = (symmetric_noise(LABELS, 10, share, seed=0) for share in (0.2, 0.6))
    wrong = little != LABELS
    assert np.array_equal(little[wrong], much[wrong])


def test_all_other_classes_are_equally_likely() -> None:
    noisy = symmetric_noise(np.zeros(90_000, np.int64), 10, 1.0, seed=0)
    counts = np.bincount(noisy, minlength=10)
    assert counts[0] == 0
    assert np.abs(counts[1:] - 10_000).max() < 4 * np.sqrt(90_000 * (1 / 9) * (8 / 9))


def test_with_the_same_class_included_fewer_labels_are_wrong() -> None:
    noisy = symmetric_noise(np.zeros(100_000, np.int64), 10, 0.5, seed=0, same_class=True)
    wrong = np.count_nonzero(noisy)
    # 50,000 are replaced, nine in ten of them by another class.
    assert abs(wrong - 45_000) < 4 * np.sqrt(50_000 * 0.9 * 0.1)


def test_labels_stay_labels() -> None:
    noisy = symmetric_noise(LABELS, 10, 0.8, seed=0)
    assert (noisy.dtype, noisy.min(), noisy.max()) == (np.int64, 0, 9)


def test_the_given_labels_are_left_alone() -> None:
    labels = LABELS.copy()
    symmetric_noise(labels, 10, 0.8, seed=0)
    assert np.array_equal(labels, LABELS)


def test_with_two_classes_a_wrong_label_is_the_other_one() -> None:
    labels = np.arange(100) % 2
    assert np.array_equal(symmetric_noise(labels, 2, 1.0, seed=0), 1 - labels)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_out_of_range_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match=r"share must be in \[0, 1\]"):
        symmetric_noise(LABELS, 10, share, seed=0)


def test_labels_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match=r"labels must be in \[0, 5\)"):
        symmetric_noise(LABELS, 5, 0.1, seed=0)
