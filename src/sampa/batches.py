"""Batches are whatever the user's loader yields: tensors, arrays and plain values in any nest.

All that is done with them goes through `opened`, which takes a container apart and knows the way
back. Containers are mappings, tuples, lists, sets, dataclasses and other objects, by their
attributes or by what they give to pickle.
"""

from __future__ import annotations

import copy
import dataclasses
import weakref
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import cached_property, partial
from itertools import pairwise
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

from sampa.torch_private import parts_of_sparse

PLAIN = frozenset({NoneType, bool, int, float, complex, str, bytes})
"""Types of values that nothing can change."""

NAMED = (type, FunctionType, BuiltinFunctionType, MethodType, ModuleType)
"""Types of objects that are known by their names."""

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
    """

    parts: dict[Any, Any]
    rebuild: Callable[[dict[Any, Any]], Any] | None


def opened(node: Any) -> Container | None:
    """What a container consists of; None of a leaf.

    A list of plain values is a leaf: there may be many of them.
    """
    if type(node) in PLAIN or isinstance(node, _LEAVES):
        if isinstance(node, np.ndarray) and node.dtype.hasobject:
            return Container({"shape": node.shape, "values": node.tolist()}, None)
        return None
    if isinstance(node, Mapping):
        in_order = {key: node[key] for key in sorted(node, key=_order)}
        return Container(in_order, partial(_mapping_like, node))
    if isinstance(node, tuple | list):
        if type(node) in (tuple, list) and PLAIN.issuperset(map(type, node)):
            return None
        return Container(dict(enumerate(node)), partial(_sequence_like, node))
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


def _mapped(
    node: Any,
    leaf: Callable[[Any], Any],
    opaque: Callable[[Any], Any],
    above: tuple[int, ...] = (),
) -> Any:
    """The same structure with other leaves.

    Args:
        node: A batch or a part of it.
        leaf: From a leaf to what takes its place.
        opaque: The same for a container without a way back.
        above: The containers around it.
    """
    found = opened(node)
    if found is None:
        return leaf(node)
    if found.rebuild is None or id(node) in above:
        return opaque(node)
    inside = (*above, id(node))
    return found.rebuild({k: _mapped(v, leaf, opaque, inside) for k, v in found.parts.items()})


# ---- kinds of containers -----------------------------------------------------------------------


def _order(key: Any) -> str:
    """Something to sort by that is the same in all processes, as the hash of a string is not."""
    return str(sorted(map(_order, key))) if isinstance(key, frozenset) else repr(key)


def _mapping_like(node: Mapping[Any, Any], parts: dict[Any, Any]) -> Mapping[Any, Any]:
    if not isinstance(node, dict | UserDict):  # others may share their memory with a copy
        return {key: parts[key] for key in node}
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


def strided_parts(t: Tensor) -> list[Tensor]:
    """The plain tensors that a sparse, nested, quantized or wrapped tensor is made of."""
    if t.layout is torch.jagged:  # its cache of lengths is made where it is asked for
        return [t.values(), t.offsets()]  # pyright: ignore[reportAttributeAccessIssue]
    if hasattr(t, "__tensor_flatten__"):
        names, _ = t.__tensor_flatten__()  # pyright: ignore[reportAttributeAccessIssue]
        return [part for name in names for part in strided_parts(getattr(t, name))]
    if t.is_nested:
        return list(t.unbind())
    if t.is_quantized:
        return [t.dequantize()]
    if t.layout is torch.strided:
        return [t]
    if t.layout is torch.sparse_coo:
        return list(parts_of_sparse(t))
    if t.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [t.crow_indices(), t.col_indices(), t.values()]
    if t.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [t.ccol_indices(), t.row_indices(), t.values()]
    return [t.to_dense()]


# ---- tensors and samples -----------------------------------------------------------------------


def tensors_in(batch: Any) -> Iterator[Tensor]:
    """Every tensor of a batch, in a fixed order."""
    return (leaf for leaf in walk(batch) if isinstance(leaf, Tensor))


def map_tensors(function: Callable[[Tensor], Tensor], batch: Any) -> Any:
    """The same structure with `function` applied to every tensor.

    Raises:
        TypeError: If a tensor is in an object that cannot be put together again.
    """
    return _mapped(batch, lambda x: function(x) if isinstance(x, Tensor) else x, _refuse_tensors)


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


def batch_size(batch: Any) -> int:
    """The common length of the first dimension of tensors and arrays.

    Raises:
        ValueError: If there is nothing to count, or they disagree.
    """
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

    return _mapped(batch, leaf, _refuse_tensors)


def _on_host(chosen: slice | Tensor) -> Any:
    return chosen.cpu().numpy() if isinstance(chosen, Tensor) else chosen


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
    edges = bounds(size, parts)
    return [(select(batch, slice(a, b)), (b - a) / size) for a, b in pairwise(edges)]


def bounds(size: int, parts: int) -> list[int]:
    """Where the micro-batches of a batch begin, and where the last one ends."""
    return [size * i // parts for i in range(parts + 1)]
