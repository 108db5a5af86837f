"""The samples of a batch, which are in the first dimension of its tensors and arrays."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from torch import Tensor

from sampa.batches import mapped, tensors_in, walk


def map_tensors(function: Callable[[Tensor], Tensor], batch: Any) -> Any:
    """The same structure with `function` applied to every tensor.

    Raises:
        TypeError: If a tensor is in an object that cannot be put together again.
    """
    return mapped(batch, lambda x: function(x) if isinstance(x, Tensor) else x, _refuse_tensors)


def _refuse_tensors(node: Any) -> Any:
    """The object itself, if no tensor in it would be left as it was."""
    if next(tensors_in(node), None) is not None:
        raise TypeError(
            f"the tensors of a batch must be in mappings, tuples, lists, dataclasses or plain "
            f"objects where the batch is cut into parts, got some in a {type(node).__qualname__}, "
            "which has a state of its own or refers to itself; let the loader yield them in a "
            "dataclass or a dict"
        )
    return node


def batch_size(batch: Any, *, in_parts: bool = False) -> int:
    """The common length of the first dimension of tensors and arrays, or that of all parts.

    Raises:
        ValueError: If there is nothing to count, or they disagree.
    """
    if in_parts:
        return sum(map(batch_size, batch))
    found = [x for x in walk(batch) if isinstance(x, Tensor | np.ndarray)]
    sizes = {x.shape[0] for x in found if x.ndim > 0}
    if len(sizes) != 1:
        raise ValueError(
            "splitting a batch needs tensors that agree in their first dimension, "
            f"got sizes {sorted(sizes)}; put the samples first in every tensor of the batch"
        )
    return sizes.pop()


def select(batch: Any, chosen: slice | Tensor) -> Any:
    """Some samples of a batch: of its tensors, its arrays, and its lists of texts as long.

    Everything else belongs to the batch as a whole.
    """

    def leaf(x: Any) -> Any:
        if isinstance(x, Tensor):
            on_device = chosen.to(x.device) if isinstance(chosen, Tensor) else chosen
            return x[on_device] if x.ndim > 0 else x
        if isinstance(x, np.ndarray):
            return x[_on_host(chosen)] if x.ndim > 0 else x
        if isinstance(x, tuple | list) and x and all(isinstance(text, str | bytes) for text in x):
            is_by_sample = len(x) == batch_size(batch)
            return type(x)(np.array(x, dtype=object)[_on_host(chosen)]) if is_by_sample else x
        return x

    return mapped(batch, leaf, _refuse_tensors)


def _on_host(chosen: slice | Tensor) -> Any:
    return chosen.cpu().numpy() if isinstance(chosen, Tensor) else chosen


def split(batch: Any, parts: int, *, at_most: bool = False) -> list[tuple[Any, float]]:
    """Cut a batch into `parts` micro-batches, each with its share of the samples.

    The shares weight the micro-batches' mean losses, so that their sum is the whole batch's mean.
    If there may be fewer (`at_most`), there are no more than samples.
    """
    size = batch_size(batch) if parts > 1 else 1
    if at_most:
        parts = max(1, min(parts, size))
    if parts == 1:
        return [(batch, 1.0)]
    if size < parts:
        raise ValueError(
            f"a batch of {size} samples cannot be cut into {parts} micro-batches; "
            "use a larger batch or fewer micro-batches"
        )
    edges = bounds(size, parts)
    return [(select(batch, slice(a, b)), (b - a) / size) for a, b in pairwise(edges)]


def bounds(size: int, parts: int) -> list[int]:
    """Where the micro-batches of a batch begin, and where the last one ends."""
    return [size * i // parts for i in range(parts + 1)]
