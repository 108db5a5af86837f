"""Random numbers for data, the same with every version of NumPy and on every machine.

Only the raw words of PCG64 are used, which NumPy promises never to change; its `Generator` methods
carry no such promise. A word belongs to a position: word i does not depend on how many are drawn.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from sampa.execution.randomness import derive_seed


def words(n: int, *key: int | str) -> np.ndarray:
    """The first `n` words, uint64, of the stream that belongs to a key."""
    return np.random.PCG64(derive_seed(*key)).random_raw(n)


def permutation(n: int, *key: int | str) -> np.ndarray:
    """The numbers 0 ... n-1 in an order that belongs to a key."""
    return np.argsort(words(n, *key), kind="stable")


@lru_cache(maxsize=8)
def epoch_words(n: int, seed: int, epoch: int) -> np.ndarray:
    """One word per sample of a data set, new in every epoch; for augmentation."""
    return _frozen(words(n, seed, "augment", epoch))


@lru_cache(maxsize=8)
def epoch_order(n: int, seed: int, epoch: int) -> np.ndarray:
    """The order of `n` samples in an epoch."""
    return _frozen(permutation(n, seed, "order", epoch))


def _frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False  # kept between calls, so it must not change
    return array
