"""Nested states as named tensors and JSON, and back: nothing that could carry code.

Of a tensor that is sharded over processes (a DTensor) only the rows of this one are taken; the JSON
says which those are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from sampa.vectors.random import spans_of
from sampa.vectors.vector import is_sharded, local

Json = Any


@dataclass(frozen=True)
class Shard:
    """Which rows of a tensor one process has.

    Attributes:
        name: Of the tensor, the same on all processes.
        shape: Of all of it.
        offsets: Of the first element here, in each dimension.
    """

    name: str
    shape: tuple[int, ...]
    offsets: tuple[int, ...]

    def as_json(self) -> Json:
        """The node of a skeleton that stands for it."""
        return {"$shard": [self.name, list(self.shape), list(self.offsets)]}


def flatten(tree: Any, prefix: str = "") -> tuple[Json, dict[str, Tensor]]:
    """A JSON skeleton, and the tensors it refers to by name.

    Raises:
        TypeError: If there is something that JSON and tensors cannot hold.
    """
    tensors: dict[str, Tensor] = {}

    def visit(node: Any, path: str) -> Json:
        if isinstance(node, Tensor):
            # The keys "a.b" and, inside "a", "b" have the same path, as have 0 and "0".
            name = path if path not in tensors else f"{path}#{len(tensors)}"
            # Views into a larger buffer (exchanged gradients) are stored on their own.
            tensors[name] = local([node])[0].detach().to("cpu", copy=True).contiguous()
            return _shard_of(name, node).as_json() if is_sharded(node) else {"$tensor": name}
        if node is None or isinstance(node, bool | int | float | str):
            return node
        if isinstance(node, dict):
            pairs = [[key, visit(value, f"{path}.{key}")] for key, value in node.items()]
            return {"$dict": pairs}
        if isinstance(node, list | tuple):
            items = [visit(value, f"{path}.{i}") for i, value in enumerate(node)]
            return {"$tuple": items} if isinstance(node, tuple) else items
        raise TypeError(f"{path} must be made of tensors, numbers and text, got {type(node)}")

    return visit(tree, prefix), tensors


def _shard_of(name: str, whole: Tensor) -> Shard:
    (first, size), *_ = spans_of([whole]) or [(0, 0)]
    row = first * whole.shape[0] // max(size, 1)
    return Shard(name, tuple(whole.shape), (row, *[0] * (whole.ndim - 1)))


def shards_in(skeleton: Json) -> Iterator[Shard]:
    """All sharded tensors of a skeleton.

    Raises:
        ValueError: If one is not as `flatten` writes it.
    """
    if isinstance(skeleton, list):
        for item in skeleton:
            yield from shards_in(item)
    elif isinstance(skeleton, dict):
        for kind, value in skeleton.items():
            if kind == "$shard":
                yield _shard(value)
            else:
                yield from shards_in(value)


def _shard(value: Json) -> Shard:
    name, shape, offsets = value
    numbers = [*shape, *offsets]
    if not shape or len(shape) != len(offsets) or not all(type(n) is int for n in numbers):
        raise ValueError(f"a shard must have a shape and offsets in it, got {value}")
    if min(numbers) < 0 or any(offsets[1:]):
        raise ValueError(f"a shard must be rows of a tensor, got {value}")
    return Shard(name, tuple(shape), tuple(offsets))


def unflatten(
    skeleton: Json, tensors: Mapping[str, Tensor], shards: Mapping[str, Tensor] | None = None
) -> Any:
    """What `flatten` took apart.

    Args:
        skeleton: Its JSON.
        tensors: By name.
        shards: The sharded ones by name, put together.

    Raises:
        ValueError: If the skeleton is not one that `flatten` makes.
    """
    if isinstance(skeleton, list):
        return [unflatten(item, tensors, shards) for item in skeleton]
    if not isinstance(skeleton, dict):
        return skeleton
    if len(skeleton) != 1:
        raise ValueError(f"a node must have one key, got {sorted(skeleton)}")
    ((kind, value),) = skeleton.items()
    if kind == "$tensor" and value in tensors:
        return tensors[value]
    if kind == "$shard" and shards is not None and value[0] in shards:
        return shards[value[0]]
    if kind == "$dict":
        return {key: unflatten(item, tensors, shards) for key, item in value}
    if kind == "$tuple":
        return tuple(unflatten(item, tensors, shards) for item in value)
    raise ValueError(f"a node must be a tensor, dict or tuple that exists, got {kind}: {value}")
