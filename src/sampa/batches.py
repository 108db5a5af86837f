"""Batches are whatever the user's loader yields: tensors, arrays and plain values in any nest.

All that is done with them goes through `opened`, which takes a container apart and knows the way
back. Containers are mappings, tuples, lists, sets, dataclasses and other objects, by their
attributes or by what they give to pickle.
"""

from __future__ import annotations

import copy
import dataclasses
import weakref
import zlib
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import cached_property, partial
from types import (
    BuiltinFunctionType,
    FunctionType,
    MethodType,
    ModuleType,
    NoneType,
    SimpleNamespace,
)
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sampa.torch_private import write_count

PLAIN = frozenset({NoneType, bool, int, float, complex, str, bytes})
"""Types of values that nothing can change."""

NAMED = (type, FunctionType, BuiltinFunctionType, MethodType, ModuleType)
"""Types of objects that are known by their names."""

_OF_NUMPY = frozenset(
    torch.from_numpy(np.zeros(1, kind)).dtype
    for kind in (*"?bBhHiIlLefd", np.complex64, np.complex128)
)
_LEAVES = (
    *(Tensor, np.ndarray, np.generic, bytearray, memoryview, weakref.ref, Enum, *NAMED),
    *(int, float, complex, str, bytes, torch.dtype, torch.device, torch.layout),
)


# ---- the walk --------------------------------------------------------------------------------


class Container(NamedTuple):
    """A container taken apart.

    Attributes:
        parts: What it consists of, by key, attribute or number.
        rebuild: From other parts to a container of the same type; None if there is no way back.
        keeps_type: Whether it is of the same type.
    """

    parts: dict[Any, Any]
    rebuild: Callable[[dict[Any, Any]], Any] | None
    keeps_type: bool = True


def opened(node: Any) -> Container | None:
    """What a container consists of; None of a leaf.

    A list of plain values is a leaf: there may be many of them.
    """
    if isinstance(node, tuple | list) and not isinstance(node, Enum):  # the usual batch: first
        if type(node) in (tuple, list) and PLAIN.issuperset(map(type, node)):
            return None
        return Container(dict(enumerate(node)), partial(_sequence_like, node))
    if type(node) in PLAIN or isinstance(node, _LEAVES):
        if isinstance(node, np.ndarray) and node.dtype.hasobject:
            return Container({"shape": node.shape, "values": node.tolist()}, None)
        return None
    if isinstance(node, Mapping):
        in_order = {key: node[key] for key in sorted(node, key=_order)}
        if isinstance(node, dict | UserDict):
            return Container(in_order, partial(_mapping_like, node))
        # Another's copy may share its memory.
        return Container(in_order, lambda parts: {k: parts[k] for k in node}, keeps_type=False)
    if isinstance(node, set | frozenset):
        in_order = sorted(node, key=_order)
        return Container(dict(enumerate(in_order)), lambda parts: type(node)(parts.values()))
    attributes = _attributes(node)
    if attributes is not None:
        return Container(attributes, partial(_object_like, node))
    state = _state(node)
    return None if state is None else Container(state, None)


def walk(node: Any, above: tuple[int, ...] = ()) -> Iterator[Any]:
    """Every leaf of a batch, in an order that is the same in all processes.

    A container is announced by the name of its type and its keys, so that the walks of two batches
    are alike only if the batches are. An object that refers to one around it is followed once.
    """
    found = opened(node)
    if found is None:
        yield node
    elif id(node) in above:
        yield above.index(id(node))
    else:
        yield type(node).__qualname__
        yield from walk([*found.parts])
        for part in found.parts.values():
            yield from walk(part, (*above, id(node)))


def mapped(
    node: Any,
    leaf: Callable[[Any], Any],
    opaque: Callable[[Any], Any],
    above: tuple[int, ...] = (),
    *,
    keep_types: bool = False,
) -> Any:
    """The same structure with other leaves.

    Args:
        node: A batch or a part of it.
        leaf: From a leaf to what takes its place.
        opaque: The same for a container without a way back.
        above: The containers around it.
        keep_types: Whether a way back that ends at another type is none.
    """
    found = opened(node)
    if found is None:
        return leaf(node)
    has_way = found.rebuild is not None and (found.keeps_type or not keep_types)
    if not has_way or id(node) in above:
        return opaque(node)
    inside = (*above, id(node))
    new = {
        key: mapped(part, leaf, opaque, inside, keep_types=keep_types)
        for key, part in found.parts.items()
    }
    if isinstance(node, tuple) and all(new[key] is part for key, part in found.parts.items()):
        return node
    assert found.rebuild is not None
    return found.rebuild(new)


def tensors_in(batch: Any) -> Iterator[Tensor]:
    """Every tensor of a batch, in a fixed order."""
    return (leaf for leaf in walk(batch) if isinstance(leaf, Tensor))


# ---- kinds of containers -----------------------------------------------------------------------


def _order(key: Any) -> str:
    """Something to sort by that is the same in all processes, as the hash of a string is not."""
    return str(sorted(map(_order, key))) if isinstance(key, frozenset) else repr(key)


def _mapping_like(node: Any, parts: dict[Any, Any]) -> Any:
    new = copy.copy(node)
    for key, value in parts.items():
        new[key] = value
    return new


def _sequence_like(node: Any, parts: dict[int, Any]) -> Any:
    values = parts.values()
    return type(node)(*values) if hasattr(node, "_fields") else type(node)(values)


def _object_like(node: Any, parts: dict[str, Any]) -> Any:
    new = copy.copy(node)
    for name, value in parts.items():
        object.__setattr__(new, name, value)
    return new


def _attributes(node: Any) -> dict[str, Any] | None:
    """The attributes of a dataclass, or of an object that leaves it to Python what to pickle.

    What a `cached_property` keeps is left out: it follows from the others, and need not be known.
    """
    kind = type(node)
    if dataclasses.is_dataclass(node):
        fields = {f.name: getattr(node, f.name, None) for f in dataclasses.fields(node)}
        found = fields | getattr(node, "__dict__", {})
    elif isinstance(node, SimpleNamespace):
        found = vars(node)
    elif all(getattr(kind, name) is getattr(object, name) for name in _PICKLING):
        try:
            state = node.__reduce_ex__(4)[2]
        except Exception:  # memory that Python does not know of
            return None
        in_dict, in_slots = state if isinstance(state, tuple) else (state, None)
        found = {**(in_dict or {}), **(in_slots or {})}
    else:
        return None
    names = sorted(n for n in found if not isinstance(getattr(kind, n, None), cached_property))
    return {name: found[name] for name in names}


_PICKLING = ("__reduce_ex__", "__reduce__", "__getstate__")


def _state(node: Any) -> dict[int, Any] | None:
    """What an object with a state of its own gives to pickle; None if it refuses."""
    try:
        reduced = node.__reduce_ex__(4)
    except Exception:
        return None
    if isinstance(reduced, str):  # the name of something that every process has
        return {0: reduced}
    made_from, items = reduced[:3], reduced[3:5]  # items: iterators, of a list and of a mapping
    return dict(enumerate([*made_from, *(None if found is None else [*found] for found in items)]))


# ---- batches that are used again ---------------------------------------------------------------

_SAMPLE = 4096  # elements that are compared, at most, of a tensor or an array


class Watched:
    """A batch that must stay as it is until it has been used for the last time.

    Tensors count how often torch writes to them. Memory of the host can change behind torch (a
    buffer of NumPy's that a loader refills), so some of its bytes are compared too.

    Attributes:
        batch: As `step` received it.
        in_parts: Whether it is a list of micro-batches; None if that is not known.
    """

    def __init__(
        self, batch: Any, traces: _Traces | None = None, in_parts: bool | None = None
    ) -> None:
        self.batch = batch
        self.in_parts = in_parts
        self._traces = _traces_of(self.leaves) if traces is None else traces
        self._was_used = False

    @cached_property
    def leaves(self) -> list[Any]:
        """What `walk` finds in the batch: walked through once, when it is first asked for."""
        return [*walk(self.batch)]

    def kept(self, hold: str) -> Watched:
        """The batch to hold until the next step, by reference or as a copy.

        By reference, containers are copied, so that filling them anew or taking something out of
        them does no harm.

        Raises:
            TypeError: If it cannot be copied.
        """
        if hold == "copy":
            copied = mapped(self.batch, _copied, _deeply_copied, keep_types=True)
            return Watched(copied, in_parts=self.in_parts)
        try:
            batch = mapped(self.batch, _shallow, copy.copy, keep_types=True)
        except Exception:  # an object that cannot be copied is held as it is
            batch = self.batch
        return Watched(batch, self._traces, self.in_parts)

    def used(self) -> Any:
        """The batch for a pass, which must find it as the passes before it did.

        Raises:
            RuntimeError: If it was changed since.
        """
        if self._was_used:
            self.require_unchanged(
                "evaluates it again in the same step; let loss_fn leave it alone"
            )
        self._was_used = True
        return self.batch

    def require_unchanged(self, need: str) -> None:
        """Raise if something was written into the batch.

        Args:
            need: Why it must not have been, and what to do.
        """
        for x, before in self._traces:
            if before.differs_from(_trace(x)):
                shape = f" of shape {tuple(x.shape)}" if isinstance(x, Tensor | np.ndarray) else ""
                raise RuntimeError(
                    f"the batch was changed after step had received it (its {type(x).__qualname__}"
                    f"{shape}), by a loader that refills its memory or a loss_fn that works in "
                    f"place, but the method {need}: write x = x.clone().mul_(2), or x = x * 2, "
                    "instead of x.mul_(2)"
                )

    def __reduce__(self) -> tuple[Any, ...]:
        return Watched, (self.batch,)  # a copy of a tensor counts anew


class _Trace(NamedTuple):
    """What tells that some data was changed.

    Attributes:
        version: How often torch wrote to it; None if that is not counted.
        address: Of its memory; None if it has none of its own.
        sample: A hash of some of its bytes; None if the host cannot see them.
        is_part: Whether it is a part of larger memory, all of which has one version.
    """

    version: int | None
    address: int | None
    sample: int | None
    is_part: bool

    def differs_from(self, now: _Trace) -> bool:
        if self.sample is None:
            return (self.version, self.address) != (now.version, now.address)
        was_written = self.version != now.version and not self.is_part
        return was_written or self.sample != now.sample


_Traces = list[tuple[Tensor | np.ndarray | bytearray, _Trace]]


def _traces_of(leaves: list[Any]) -> _Traces:
    return [(x, _trace(x)) for x in leaves if isinstance(x, (Tensor, np.ndarray, bytearray))]


def _trace(x: Tensor | np.ndarray | bytearray) -> _Trace:
    if not isinstance(x, Tensor):
        return _Trace(None, None, _sample(np.asarray(x)), False)
    if x.layout is not torch.strided or type(x) not in (Tensor, torch.nn.Parameter):
        return _Trace(_version_of(x), None, None, False)
    is_visible = x.is_cpu and not (x.is_conj() or x.is_neg() or x.is_nested or x.is_quantized)
    sample = _sample(_array_of(x.detach())) if is_visible else None
    is_part = x.untyped_storage().nbytes() > x.nbytes
    return _Trace(_version_of(x), x.data_ptr(), sample, is_part)


def _version_of(t: Tensor) -> int | None:
    return None if t.is_inference() else write_count(t)


def _array_of(t: Tensor) -> np.ndarray:
    """The same memory; types that NumPy does not know, which are short, as integers."""
    if t.dtype not in _OF_NUMPY:
        t = t.view(torch.uint8 if t.element_size() == 1 else torch.int16)
    return t.numpy()


def _sample(array: np.ndarray) -> int:
    """A hash of elements at equal distances."""
    if array.size > _SAMPLE:
        most = int(_SAMPLE ** (1 / array.ndim))
        array = array[tuple(slice(None, None, -(-n // most)) for n in array.shape)]
    return zlib.crc32(array.tobytes())


def _shallow(leaf: Any) -> Any:
    return [*leaf] if type(leaf) is list else leaf


def _copied(leaf: Any) -> Any:
    """A leaf with memory of its own."""
    if isinstance(leaf, Tensor):
        return leaf.detach().clone().requires_grad_(leaf.requires_grad)
    return copy.copy(leaf) if isinstance(leaf, np.ndarray | bytearray | list) else leaf


def _deeply_copied(node: Any) -> Any:
    """A copy of an object that knows itself what it consists of."""
    try:
        # A tensor's own copy would be one of all the memory that it is a part of.
        return copy.deepcopy(node, {id(t): _copied(t) for t in tensors_in(node)})
    except Exception as error:
        raise TypeError(
            f'hold="copy" needs a batch that can be copied, got one with a '
            f"{type(node).__qualname__}; let the loader yield memory of its own in every batch and "
            'use hold="reference", or yield tensors, arrays and plain values'
        ) from error
