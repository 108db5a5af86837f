"""Batches are whatever the user's loader yields: tensors nested in tuples, lists and mappings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from torch import Tensor


def tensors_in(batch: Any) -> Iterator[Tensor]:
    """Every tensor of a batch, in a fixed order."""
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, Mapping):
        for value in batch.values():
            yield from tensors_in(value)
    elif isinstance(batch, tuple | list):
        for value in batch:
            yield from tensors_in(value)


def map_tensors(function: Callable[[Tensor], Tensor], batch: Any) -> Any:
    """The same structure with `function` applied to every tensor."""
    if isinstance(batch, Tensor):
        return function(batch)
    if isinstance(batch, Mapping):
        return {key: map_tensors(function, value) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(map_tensors(function, value) for value in batch))
    if isinstance(batch, tuple | list):
        return type(batch)(map_tensors(function, value) for value in batch)
    return batch


def batch_size(batch: Any) -> int:
    """The common length of the tensors' first dimension.

    Raises:
        ValueError: If there is no tensor to count, or the tensors disagree.
    """
    sizes = {t.shape[0] for t in tensors_in(batch) if t.ndim > 0}
    if len(sizes) != 1:
        raise ValueError(
            "splitting a batch needs tensors that agree in their first dimension, "
            f"got sizes {sorted(sizes)}; put the samples first in every tensor of the batch"
        )
    return sizes.pop()


def split(batch: Any, parts: int) -> list[tuple[Any, float]]:
    """Cut a batch into `parts` micro-batches, each with its share of the samples.

    The shares weight the micro-batches' mean losses, so that their sum is the whole batch's mean.
    """
    if parts == 1:
        return [(batch, 1.0)]
    size = batch_size(batch)
    if size < parts:
        raise ValueError(
            f"a batch of {size} samples cannot be cut into {parts} micro-batches; "
            "use a larger batch or fewer micro-batches"
        )
    return [
        (map_tensors(lambda t, a=a, b=b: t[a:b] if t.ndim > 0 else t, batch), (b - a) / size)
        for a, b in pairwise(bounds(size, parts))
    ]


def bounds(size: int, parts: int) -> list[int]:
    """Where the micro-batches of a batch begin, and where the last one ends."""
    return [size * i // parts for i in range(parts + 1)]
