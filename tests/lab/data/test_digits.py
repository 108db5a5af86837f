"""Scikit-learn's digits as image data."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_digits as embedded

from sampa.lab.data.digits import load_digits


def test_the_split_is_80_to_20() -> None:
    assert (len(load_digits("train")), len(load_digits("test"))) == (1438, 359)


def test_both_splits_together_are_all_digits() -> None:
    both = np.concatenate([load_digits(split).images for split in ("train", "test")])
    gray = embedded(return_X_y=True)[0]
    again = np.round(both.reshape(-1, 64) / 255 * 16)
    assert sorted(map(tuple, again.tolist())) == sorted(map(tuple, gray.tolist()))


def test_labels_are_those_of_the_package() -> None:
    counted = sum(np.bincount(load_digits(split).labels) for split in ("train", "test"))
    assert np.array_equal(counted, np.bincount(embedded(return_X_y=True)[1]))


@pytest.mark.slow
def test_scikit_learn_is_not_imported() -> None:
    code = (
        "import sys; from sampa.lab.data.digits import load_digits; load_digits(); "
        "sys.exit('sklearn' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_gray_values_reach_from_0_to_255() -> None:
    images = load_digits("train").images
    assert (images.min(), images.max()) == (0, 255)


def test_another_seed_gives_another_split() -> None:
    assert not np.array_equal(load_digits("test").images, load_digits("test", seed=1).images)


def test_normalization_is_that_of_the_training_images() -> None:
    train, test = load_digits("train"), load_digits("test")
    assert (test.mean, test.std) == (train.mean, train.std)
    assert round(float(train.images.mean() / 255), 12) == round(train.mean[0], 12)


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(ValueError, match="split must be one of 'train', 'test', got 'dev'"):
        load_digits("dev")
