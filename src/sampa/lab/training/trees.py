"""Nested states as named tensors and JSON, and back: nothing that could carry code."""

from __future__ import annotations

from typing import Any

from torch import Tensor

Json = Any


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
            tensors[name] = node.detach().to("cpu", copy=True).contiguous()
            return {"$tensor": name}
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


def unflatten(skeleton: Json, tensors: dict[str, Tensor]) -> Any:
    """What `flatten` took apart.

    Raises:
        ValueError: If the skeleton is not one that `flatten` makes.
    """
    if isinstance(skeleton, list):
        return [unflatten(item, tensors) for item in skeleton]
    if not isinstance(skeleton, dict):
        return skeleton
    if len(skeleton) != 1:
        raise ValueError(f"a node must have one key, got {sorted(skeleton)}")
    ((kind, value),) = skeleton.items()
    if kind == "$tensor" and value in tensors:
        return tensors[value]
    if kind == "$dict":
        return {key: unflatten(item, tensors) for key, item in value}
    if kind == "$tuple":
        return tuple(unflatten(item, tensors) for item in value)
    raise ValueError(f"a node must be a tensor, dict or tuple that exists, got {kind}: {value}")
