"""Training images and those held back to choose the model."""

from __future__ import annotations

import numpy as np

from sampa.lab.data.draws import permutation
from sampa.messages import require


def train_validation_split(n: int, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Part 0 ... n-1 at random into training and validation, a pure function of the seed.

    Args:
        n: Number of samples.
        share: Share held back, in [0, 1); round(share · n) samples.
        seed: Of the permutation.

    Returns:
        Both parts' indices, each in increasing order; together every index once.

    Example:
        >>> train, validation = train_validation_split(50_000, 0.1, seed=0)
        >>> len(train), len(validation)
        (45000, 5000)
    """
    require("n", n, n >= 1, ">= 1")
    require("share", share, 0 <= share < 1, "in [0, 1)")
    order = permutation(n, seed, "validation")
    cut = n - round(share * n)
    return np.sort(order[:cut]), np.sort(order[cut:])
