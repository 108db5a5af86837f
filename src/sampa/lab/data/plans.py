"""Which samples are trained on, and which make up which batch: no data, only numbers.

A plan is a pure function, so a run that resumes at any batch, or looks at one twice, sees what an
uninterrupted run sees. All shards have plans of the same length in training: none ends early.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sampa.lab.data.draws import epoch_order, permutation
from sampa.messages import require, wrong_usage


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


@dataclass(frozen=True)
class Shuffled:
    """Training: a new order in every epoch, an incomplete last batch left out.

    Attributes:
        indices: The samples to be seen.
        batch_size: Of the batch that all shards make up together.
        seed: Of the orders.
        shard: Which contiguous part of each batch is ours.
        shards: How many parts there are; a divisor of the batch size, so that the mean over the
            batch is the mean of the parts' means.
    """

    indices: np.ndarray
    batch_size: int
    seed: int
    shard: int = 0
    shards: int = 1

    def __post_init__(self) -> None:
        n, size = len(self.indices), self.batch_size
        _require_shard(self.shard, self.shards)
        with wrong_usage():
            require("batch_size", size, 1 <= size <= n, f"between 1 and the {n} samples")
            even = size % self.shards == 0
            require("batch_size", size, even, f"a multiple of the {self.shards} shards")

    def __len__(self) -> int:
        return len(self.indices) // self.batch_size

    def whole(self, epoch: int, number: int) -> np.ndarray:
        """The indices of the batch that all shards make up together."""
        _require_number(epoch, number, len(self))
        order = epoch_order(len(self.indices), self.seed, epoch)
        return self.indices[order[number * self.batch_size : (number + 1) * self.batch_size]]

    def part(self, epoch: int, number: int) -> np.ndarray:
        """The indices of this shard's part of it."""
        size = self.batch_size // self.shards
        return self.whole(epoch, number)[self.shard * size : (self.shard + 1) * size]


@dataclass(frozen=True)
class Sequential:
    """Evaluation: every sample once, in order, the last batch short; shards take turns.

    With D shards, shard s has the batches s, s + D, ...: no batch depends on D, so neither do its
    results. Shards may differ by one batch.
    """

    indices: np.ndarray
    batch_size: int
    shard: int = 0
    shards: int = 1

    def __post_init__(self) -> None:
        _require_shard(self.shard, self.shards)
        require("batch_size", self.batch_size, self.batch_size >= 1, ">= 1")

    def __len__(self) -> int:
        return len(range(self.shard, self._total, self.shards))

    @property
    def is_short(self) -> bool:
        """Whether other shards have a batch more."""
        return len(self) < -(-self._total // self.shards)

    @property
    def _total(self) -> int:
        return -(-len(self.indices) // self.batch_size)

    def whole(self, epoch: int, number: int) -> np.ndarray:
        _require_number(epoch, number, len(self))
        start = (self.shard + number * self.shards) * self.batch_size
        return self.indices[start : start + self.batch_size]

    def part(self, epoch: int, number: int) -> np.ndarray:
        return self.whole(epoch, number)


BatchPlan = Shuffled | Sequential
"""The samples of every batch: `len` batches an epoch, each as a whole or as this shard's part."""


def require_indices(indices: np.ndarray, n: int) -> None:
    """Raise a ValueError unless all are indices of `n` samples."""
    numbers = indices.ndim == 1 and (len(indices) == 0 or np.issubdtype(indices.dtype, np.integer))
    require("indices", f"{indices.dtype} {indices.shape}", numbers, "a list of integers")
    strange = indices[(indices < 0) | (indices >= n)]
    if len(strange):
        raise ValueError(f"indices must be in [0, {n}), got {int(strange[0])}")


def _require_shard(shard: int, shards: int) -> None:
    require("shards", shards, shards >= 1, ">= 1")
    require("shard", shard, 0 <= shard < shards, f"in [0, {shards})")


def _require_number(epoch: int, number: int, batches: int) -> None:
    require("epoch", epoch, epoch >= 0, ">= 0")
    if not 0 <= number < batches:
        raise IndexError(f"batch number must be in [0, {batches}), got {number}")
