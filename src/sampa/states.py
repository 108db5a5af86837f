"""Method states as plain dictionaries of tensors and numbers, and back."""

from __future__ import annotations

import dataclasses
from typing import Any

from torch import Tensor

from sampa.vectors import Vector, Weights


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


def tensor_ids(state: Any) -> set[int]:
    """The identities of all tensors that a state holds."""
    return {
        id(t)
        for value in pack(state).values()
        if isinstance(value, list)
        for t in value
        if t is not None
    }


def _packed(value: Any) -> Any:
    return list(value) if isinstance(value, Vector) else value


def _unpacked(value: Any, weights: Weights) -> Any:
    if not isinstance(value, list):
        return value
    shapes = [None if t is None else tuple(t.shape) for t in value]
    expected = [tuple(p.shape) for p in weights]
    if len(shapes) != len(expected) or any(
        s is not None and s != e for s, e in zip(shapes, expected, strict=True)
    ):
        raise ValueError(
            f"a saved vector must have the parameters' shapes {expected}, got {shapes}; "
            "load it into the model that it was saved from"
        )
    return Vector([_placed(t, p) for t, p in zip(value, weights, strict=True)])


def _placed(t: Tensor | None, p: Tensor) -> Tensor | None:
    return None if t is None else t.detach().to(p.device, copy=True)
