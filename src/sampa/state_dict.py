"""What a run carries from step to step, as plain dictionaries of tensors and numbers, and back."""

from __future__ import annotations

import dataclasses
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from sampa.batches import Watched
from sampa.execution.lookahead import bases_of
from sampa.messages import described
from sampa.method import Method, are_vectors, state_fields
from sampa.options import Options
from sampa.record import Carried, Progress
from sampa.vectors.vector import Vector, Weights, local

STATE_SCHEMA = 1  # of the dictionary under "sampa" in state_dict


def settings(base: Optimizer, method: Method, options: Options) -> dict[str, Any]:
    """What must not change between saving and loading, or between ranks."""
    names = ("perturb_eps", "same_noise", "max_norm", "accumulate")
    fields = dataclasses.fields(method)  # pyright: ignore[reportArgumentType]
    return {
        "method": type(method).__name__,
        "base": "+".join(type(one).__name__ for one in bases_of(base)),
        **{name: getattr(options, name) for name in names},
        **{f.name: described(getattr(method, f.name)) for f in fields},
    }


def saved(
    carried: Carried, settings: dict[str, Any], options: Options, *, vectors: bool = True
) -> dict[str, Any]:
    """All that the key "sampa" of a state dictionary holds.

    Args:
        carried: Where the run is.
        settings: What must not change.
        options: Of the optimizer.
        vectors: Whether vectors are here; if not, only which of their entries are present.
    """
    held = carried.held_batch if options.save_batch else None
    if held is not None:
        carried.require_held_batch()
    return {
        "schema": STATE_SCHEMA,
        "settings": settings,
        "progress": dataclasses.asdict(carried.progress),
        "method_state": pack(carried.method_state) if vectors else outline(carried.method_state),
        "held_batch": None if held is None else held.batch,
        "scaler": None if options.scaler is None else options.scaler.state_dict(),
    }


def loaded(saved: dict[str, Any], initial: Any, weights: Weights, options: Options) -> Carried:
    """What `saved` took apart, for a method with this initial state and these weights."""
    method_state = unpack(initial, saved["method_state"], weights)
    batch = saved["held_batch"]
    held = None if batch is None else Watched(batch).kept(options.hold)
    return Carried(Progress(**saved["progress"]), weights, method_state, held)


def checked(state_dict: dict[str, Any], settings: dict[str, Any] | None) -> dict[str, Any]:
    """The part of a state dictionary that is ours, if this version and optimizer can take it.

    Args:
        state_dict: As it was saved.
        settings: What must be as saved; None accepts all changes.

    Raises:
        ValueError: Naming what does not fit and what to do.
    """
    found = state_dict.get("sampa")
    if not isinstance(found, dict):
        raise ValueError(
            "state_dict must come from a sampa optimizer (it has no key 'sampa'); to start from a "
            "plain optimizer's state load that into optimizer.base"
        )
    if found.get("schema") != STATE_SCHEMA:
        raise ValueError(
            f"state_dict must have schema {STATE_SCHEMA}, got {found.get('schema')!r}; "
            "load it with the version of sampa that wrote it"
        )
    before, now = found["settings"], found["settings"] if settings is None else settings
    changed = [k for k in {**before, **now} if before.get(k) != now.get(k)]
    if changed:
        name = changed[0]
        raise ValueError(
            f"{name} must be as saved: {before.get(name)!r}, got {now.get(name)!r}; build the "
            "optimizer with the saved value, or pass allow_changes=True to go on with another"
        )
    return found


def pack(state: Any) -> dict[str, Any]:
    """A method's state (a dataclass or None) as a dictionary of lists of tensors and numbers."""
    return {name: _packed(value) for name, value in state_fields(state).items()}


def outline(state: Any) -> dict[str, Any]:
    """A method's state whose vectors are elsewhere: only which of their entries are present."""
    fields = state_fields(state).items()
    return {k: {"pattern": list(v.pattern)} if isinstance(v, Vector) else v for k, v in fields}


def unpack(initial: Any, packed: dict[str, Any], weights: Weights) -> Any:
    """The state that `pack` took apart, with vectors on their parameters' devices.

    Raises:
        ValueError: If the fields or the vectors' shapes are not those of this method and model.
    """
    names = state_fields(initial)
    if set(names) != set(packed):
        raise ValueError(
            f"the saved method state must have the fields {sorted(names)}, got {sorted(packed)}; "
            "load it into the method that it was saved from"
        )
    if initial is None:
        return None
    return dataclasses.replace(initial, **{k: _unpacked(v, weights) for k, v in packed.items()})


def _packed(value: Any) -> Any:
    if isinstance(value, Vector):
        return {"vector": list(value.clone())}
    return {"vectors": [list(v.clone()) for v in value]} if are_vectors(value) else value


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
    pairs = zip(tensors, weights, strict=True)
    return Vector(
        None if t is None else local([t.detach()])[0].to(p.device, copy=True) for t, p in pairs
    )


def _copied(value: Any) -> Any:
    """Numbers as they are, tensors of another shape than the parameters' as copies."""
    if isinstance(value, tuple):
        return tuple(map(_copied, value))
    return value.clone() if isinstance(value, Tensor) else value
