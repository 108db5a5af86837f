"""Method states as plain dictionaries of tensors and numbers, and back."""

from __future__ import annotations

import dataclasses
from typing import Any

from torch import Tensor

from sampa.vectors.vector import Vector, Weights


def pack(state: Any) -> dict[str, Any]:
    """A method's state (a dataclass or None) as a dictionary of lists of tensors and numbers."""
    if state is None:
        return {}
    return {f.name: _packed(getattr(state, f.name)) for f in dataclasses.fields(state)}


def unpack(initial: Any, packed: dict[str, Any], weights: Weights) -> Any:
    """The state that `pack` took apart, with vectors on their parameters' devices.

    Raises:
        ValueError: If the fields or the vectors' shapes are not those of this method and model.
    """
    names = [] if initial is None else [f.name for f in dataclasses.fields(initial)]
    if set(names) != set(packed):
        raise ValueError(
            f"the saved method state must have the fields {sorted(names)}, got {sorted(packed)}; "
            "load it into the method that it was saved from"
        )
    if initial is None:
        return None
    return dataclasses.replace(initial, **{k: _unpacked(v, weights) for k, v in packed.items()})


def vectors_of(state: Any) -> list[Vector]:
    """All vectors of a state."""
    values = [] if state is None else [getattr(state, f.name) for f in dataclasses.fields(state)]
    flat = [v for value in values for v in (value if _is_vectors(value) else [value])]
    return [v for v in flat if isinstance(v, Vector)]


def aligned(state: Any, weights: Weights) -> Any:
    """The state with vectors that fit the weights as they are now.

    Weights may have been frozen since it was made (nothing may move those any more), or added.
    """
    if all(_fits(v, weights) for v in vectors_of(state)):
        return state
    values = {f.name: getattr(state, f.name) for f in dataclasses.fields(state)}
    return dataclasses.replace(state, **{k: _aligned(v, weights) for k, v in values.items()})


def _aligned(value: Any, weights: Weights) -> Any:
    if _is_vectors(value):
        return tuple(_aligned(v, weights) for v in value)
    if not isinstance(value, Vector):
        return value
    padded = [*value, *[None] * (len(weights) - len(value))]
    return Vector(t if p.requires_grad else None for t, p in zip(padded, weights, strict=True))


def _fits(v: Vector, weights: Weights) -> bool:
    same_length = len(v) == len(weights)
    return same_length and all(
        t is None or p.requires_grad for t, p in zip(v, weights, strict=True)
    )


def _is_vectors(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) > 0 and isinstance(value[0], Vector)


def _packed(value: Any) -> Any:
    if isinstance(value, Vector):
        return {"vector": list(value.clone())}
    return {"vectors": [list(v.clone()) for v in value]} if _is_vectors(value) else value


def _unpacked(value: Any, weights: Weights) -> Any:
    if not isinstance(value, dict):
        return _copied(value)
    if "vectors" in value:
        return tuple(_vector(v, weights) for v in value["vectors"])
    return _vector(value["vector"], weights)


def _vector(tensors: list[Tensor | None], weights: Weights) -> Vector:
    shapes = [None if t is None else tuple(t.shape) for t in tensors]
    expected = [tuple(p.shape) for p in weights]
    if len(shapes) != len(expected) or any(
        s is not None and s != e for s, e in zip(shapes, expected, strict=True)
    ):
        raise ValueError(
            f"a saved vector must have the parameters' shapes {expected}, got {shapes}; "
            "load it into the model that it was saved from"
        )
    return Vector([_placed(t, p) for t, p in zip(tensors, weights, strict=True)])


def _placed(t: Tensor | None, p: Tensor) -> Tensor | None:
    return None if t is None else t.detach().to(p.device, copy=True)


def _copied(value: Any) -> Any:
    """Numbers as they are, tensors of another shape than the parameters' as copies."""
    if isinstance(value, tuple):
        return tuple(map(_copied, value))
    return value.clone() if isinstance(value, Tensor) else value
