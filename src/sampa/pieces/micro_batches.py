"""Parts of a batch: micro-batches, and the samples that a method chooses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from torch import Tensor

from sampa.messages import require
from sampa.method import Samples
from sampa.samples import batch_size, bounds, select, split

TakeSamples = Callable[[Any], Any]
"""From a batch to some of its samples."""


@dataclass(frozen=True)
class MicroBatches:
    """Into how many micro-batches a batch is cut: by their size, or by their number.

    The literature calls both "m"; here `size` samples each, or `count` of them.
    """

    size: int = 32
    count: int | None = None

    def __post_init__(self) -> None:
        require("size", self.size, self.size >= 1, ">= 1")
        require("count", self.count, self.count is None or self.count >= 1, ">= 1 or None")

    def number(self, batch_size: int) -> int:
        """How many micro-batches a batch of this size gives."""
        return self.count or -(-batch_size // self.size)

    def shares(self, batch_size: int) -> tuple[float, ...]:
        """The share of the samples in each of them."""
        edges = bounds(batch_size, self.number(batch_size))
        return tuple((b - a) / batch_size for a, b in pairwise(edges))


def cut(shares: Sequence[float]) -> tuple[Samples, ...]:
    """The micro-batches of a batch, which have these shares of its samples."""
    n = len(shares)
    return tuple(Samples(None if n == 1 else shard(j, n), s, j) for j, s in enumerate(shares))


def shard(number: int, of: int) -> TakeSamples:
    """Part `number` out of `of`."""
    return lambda batch: split(batch, of)[number][0]


def rows(chosen: Tensor) -> TakeSamples:
    """The samples with these numbers."""
    return lambda batch: select(batch, chosen)


def first_samples(share: float) -> TakeSamples:
    """The first samples, at least one."""

    def part(batch: Any) -> Any:
        kept = max(1, int(share * batch_size(batch)))
        return select(batch, slice(kept))

    return part
