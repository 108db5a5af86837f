"""Scikit-learn's handwritten digits: real data that comes with a package, 1,797 images of 8 x 8."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from sampa.lab.data.draws import permutation
from sampa.lab.data.image_data import ImageData, channel_statistics
from sampa.messages import require_choice

DIGITS_TEST_SHARE = 0.2


def load_digits(split: str = "train", seed: int = 0) -> ImageData:
    """The digits, 80 % for training and 20 % for testing by a permutation from the seed.

    Their 17 gray values are spread over 0 ... 255. Random crops move them by one pixel, and they
    are never mirrored.
    """
    require_choice("split", split, ("train", "test"))
    rows = _embedded()
    gray, labels = rows[:, :-1].reshape(-1, 1, 8, 8), rows[:, -1]
    images = ((gray * 255 + 8) // 16).astype(np.uint8)
    order = permutation(len(images), seed, "digits")
    cut = len(images) - int(DIGITS_TEST_SHARE * len(images))
    mean, std = channel_statistics(images[np.sort(order[:cut])])
    chosen = np.sort(order[:cut] if split == "train" else order[cut:])
    classes = tuple(str(digit) for digit in range(10))
    return ImageData(labels[chosen], classes, mean, std, images[chosen], padding=1, flips=False)


@cache
def _embedded() -> np.ndarray:
    """A row for each image: 64 gray values and the digit.

    The file is read without scikit-learn, whose import takes longer than a short training.
    """
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("No module named 'sklearn'", name="sklearn")
    path = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    return np.loadtxt(path, delimiter=",", dtype=np.int64)
