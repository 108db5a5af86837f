"""A run in torch's distributed checkpoint (DCP), which knows states of parameters and nothing else.

`get_optimizer_state_dict` and `set_optimizer_state_dict` carry what stands in the state of each
parameter, as DTensors under the parameters' names, so that DCP can cut them anew for another number
of ranks. So the vectors of a sharded method (SAMPa's g_t) stand there, in the dictionary that is
made for saving, never in the live state: a base optimizer takes a state that is not empty for its
own. A vector always has its place in the checkpoint, zeros if there is none: whoever loads must
know what to ask for before the first step. All else is in `ExtraState`.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sampa.messages import refuse_lost_vector
from sampa.method import Method, are_vectors, state_fields
from sampa.options import Options
from sampa.record import Carried, Progress
from sampa.state_dict import loaded
from sampa.vectors.vector import Vector, Weights, local, placed

PREFIX = "sampa_"  # of a vector's name in the state of a parameter

Vectors = dict[str, list[Tensor | None]]
"""For each field of a method's state, an entry per parameter."""


def kept_vectors(method: Method) -> list[str]:
    """The fields of a method's state that hold a vector, at some time.

    A method may tell by an attribute of that name; otherwise it is all that are declared so.
    """
    known = getattr(method, "kept_vectors", None)
    if known is not None:
        return list(known)
    state = method.initial_state()
    declared = {} if state is None else {f.name: str(f.type) for f in dataclasses.fields(state)}
    return [name for name, kind in declared.items() if "Vector" in kind and "tuple" not in kind]


def with_vectors(state_dict: dict[str, Any], carried: Carried, method: Method) -> dict[str, Any]:
    """A base optimizer's dictionary with the method's vectors in the states of the parameters.

    Raises:
        ValueError: If the method keeps vectors that have no fixed place.
    """
    names = kept_vectors(method)
    fields = state_fields(carried.method_state)
    others = [n for n, v in fields.items() if isinstance(v, Vector) and n not in names]
    others += [n for n, v in fields.items() if are_vectors(v)]
    if others or getattr(method, "writes_records", False):
        raise ValueError(
            f"{type(method).__name__} keeps {others[0] if others else 'records of samples'} in a "
            "form that a sharded model cannot save; leave out fully_shard, or choose a variant "
            "with one gradient a batch (without micro_batches or ascent_loss)"
        )
    state = dict(state_dict["state"])
    for i, p in enumerate(carried.weights):
        if names and p.requires_grad:
            own = {PREFIX + name: _entry(fields[name], i, p) for name in names}
            state[i] = {**state.get(i, {}), **own}
    return {**state_dict, "state": state}


def _entry(vector: Vector | None, i: int, p: Tensor) -> Tensor | None:
    part = None if vector is None else vector.tensors[i]
    whole = local([p])[0].detach()
    return placed(p, torch.zeros_like(whole) if part is None else part.clone())


def without_vectors(state_dict: dict[str, Any]) -> tuple[dict[str, Any], Vectors]:
    """What `with_vectors` has joined, taken apart."""
    order = [key for group in state_dict["param_groups"] for key in group["params"]]
    entries = [state_dict["state"].get(key, {}) for key in order]
    names = {name for entry in entries for name in entry if _is_ours(name)}
    vectors = {n.removeprefix(PREFIX): [entry.get(n) for entry in entries] for n in sorted(names)}
    state: dict[Any, Any] = {}
    for key, entry in state_dict["state"].items():
        rest = entry
        if isinstance(entry, Mapping):
            rest = {name: value for name, value in entry.items() if not _is_ours(name)}
        if rest or not entry:
            state[key] = rest
    return {**state_dict, "state": state}, vectors


def _is_ours(name: Any) -> bool:
    return isinstance(name, str) and name.startswith(PREFIX)


@dataclass(frozen=True)
class Parts:
    """What was loaded so far of a run that was saved in parts.

    Attributes:
        vectors: From the states of the parameters.
        extra: What `state_dict.saved` gave; its vectors tell only which entries they have.
    """

    vectors: Vectors | None = None
    extra: dict[str, Any] | None = None

    def joined(self, other: Parts) -> Parts:
        """With the other's parts in place of those that it has."""
        vectors = self.vectors if other.vectors is None else other.vectors
        return Parts(vectors, self.extra if other.extra is None else other.extra)

    def carried(self, method: Method, weights: Weights, options: Options) -> Carried:
        """Where the run was; one that refuses to go on while a part is missing."""
        if self.vectors is None or self.extra is None:
            missing = "extra_state" if self.extra is None else "state_dict"
            return Carried(Progress(seed=0), weights, method.initial_state(), missing=missing)
        packed = self.extra["method_state"]
        filled = {name: self._filled(name, value) for name, value in packed.items()}
        saved = {**self.extra, "method_state": filled}
        return loaded(saved, method.initial_state(), weights, options)

    def _filled(self, name: str, value: Any) -> Any:
        if not isinstance(value, dict) or "pattern" not in value:
            return value
        found = (self.vectors or {}).get(name)
        if found is None:
            refuse_lost_vector(PREFIX + name)
        pairs = zip(found, value["pattern"], strict=True)
        return {"vector": [t if is_present else None for t, is_present in pairs]}


class ExtraState:
    """All of a run that belongs to no parameter, as a `Stateful` of torch's distributed checkpoint.

    The held batch is saved for each data rank.
    """

    def __init__(
        self,
        save: Callable[[], dict[str, Any]],
        load: Callable[[dict[str, Any]], None],
        batch_key: str | None,
    ) -> None:
        self._save = save
        self._load = load
        self._batch_key = batch_key

    def state_dict(self) -> dict[str, Any]:
        saved = self._save()
        batch = saved.pop("held_batch")
        parts = {"run": _to_bytes(saved)}
        return parts if self._batch_key is None else {**parts, self._batch_key: _to_bytes(batch)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        batch = None if self._batch_key is None else _from_bytes(state_dict[self._batch_key])
        self._load({**_from_bytes(state_dict["run"]), "held_batch": batch})


def batch_key(data_rank: int, data_ranks: int) -> str:
    """Under which a data rank's held batch is saved; DCP names it if a checkpoint has it not."""
    return (
        f"held batch of data rank {data_rank} of {data_ranks} (on another number of ranks load "
        "extra_state(batch=False), then call optimizer.hold(batch))"
    )


def _to_bytes(value: Any) -> bytes:
    """One object, whatever is inside: DCP would ask for its parts before they are known."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def _from_bytes(value: bytes) -> Any:
    return torch.load(io.BytesIO(value), weights_only=True)
