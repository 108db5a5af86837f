"""Whether a lookahead left its base optimizer as it was: looked at once, at no copy of a tensor.

A copy of an optimizer shares what belongs to no instance (class attributes, attributes of
parameters) and whatever a class of the user's shares when it is copied. An optimizer that changes
such things in a lookahead would make another step afterwards, and is refused.
"""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from sampa.execution.joint import Joint
from sampa.torch_private import storage_key, version_of
from sampa.vectors.vector import Weights

FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodType, ModuleType, type, property)


class Snapshot:
    """All that an optimizer keeps: tensors by identity and version, the rest by value.

    Attributes:
        shares_memory: Whether two tensors of it are parts of the same memory, or one is a part of a
            weight: they must stay so in a copy.
    """

    def __init__(self, base: Optimizer, weights: Weights) -> None:
        self._name = type(base).__name__
        # Of the weights, and of views of them: a lookahead moves those, and they are put back.
        self._moved = {storage_key(p) for p in weights}
        self._numbers = {id(p): i for i, p in enumerate(weights)}
        self._alive: list[Any] = []  # an id means nothing once its object is gone
        self._entries = self._described(base, weights)

        tensors = {id(t): t for t in self._alive if isinstance(t, Tensor)}.values()
        storages = Counter(storage_key(t) for t in tensors if id(t) not in self._numbers)
        self.shares_memory = any(n > 1 or key in self._moved for key, n in storages.items())

    def require_untouched(self, base: Optimizer, weights: Weights) -> None:
        """Raise if something differs now.

        Raises:
            RuntimeError: Naming it.
        """
        now = self._described(base, weights)
        for name in [*self._entries, *now]:
            if name not in now or name not in self._entries or now[name] != self._entries[name]:
                raise RuntimeError(
                    f"a lookahead must leave the base optimizer as it was, and a step of "
                    f"{self._name} on a copy changed {name} of the original; keep it in `state`, "
                    "in the groups or in an attribute of the optimizer (an object of a class of "
                    "your own there needs a __deepcopy__ that shares nothing), or use a method "
                    "without a lookahead, such as sampa.SAM; this run must start again"
                )

    def _described(self, base: Optimizer, weights: Weights) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        self._seen: set[int] = set()
        for owner, name, value in _kept(base, weights):
            entries.update(self._entries_of(value, f"{owner}.{name}"))
        return entries

    def _entries_of(self, value: Any, name: str) -> Iterator[tuple[str, Any]]:
        """Everything in a value, each with the path to it."""
        if value is None or isinstance(value, bool | int | float | complex | str | bytes):
            yield name, repr(value)  # not equal to itself: nan
            return
        self._alive.append(value)
        if isinstance(value, Tensor):
            is_moved = id(value) in self._numbers or storage_key(value) in self._moved
            yield name, (id(value), None if is_moved else version_of(value))
            return
        yield name, (id(value), _size(value))
        if id(value) in self._seen:
            return
        self._seen.add(id(value))
        for path, part in self._parts(value, name):
            yield from self._entries_of(part, path)

    def _parts(self, value: Any, name: str) -> Iterator[tuple[str, Any]]:
        if isinstance(value, Mapping):
            for key, part in value.items():
                yield f"{name}[{self._numbers.get(id(key), key)!r}]", part
        elif isinstance(value, list | tuple | deque):
            yield from ((f"{name}[{i}]", part) for i, part in enumerate(value))
        elif isinstance(value, set | frozenset):
            yield f"the elements of {name}", repr(sorted(map(repr, value)))
        elif isinstance(value, nn.Module):
            tensors = [*value.named_parameters(), *value.named_buffers()]
            yield from ((f"{name}.{path}", t) for path, t in tensors)
        elif _is_array(value):
            yield f"the elements of {name}", value.tobytes()
        elif hasattr(value, "__dict__") and not isinstance(value, FUNCTIONS):
            yield from ((f"{name}.{key}", part) for key, part in vars(value).items())


def _kept(base: Optimizer, weights: Weights) -> Iterator[tuple[str, str, Any]]:
    """Owner, name and value of what an optimizer may count or collect in."""
    for name, value in vars(base).items():
        yield type(base).__name__, name, value
    joined = base.bases if isinstance(base, Joint) else [base]
    for owner in dict.fromkeys(owner for one in joined for owner in type(one).__mro__):
        if issubclass(owner, Optimizer) and owner is not Optimizer:
            for name, value in vars(owner).items():
                if not name.startswith("__") and not isinstance(value, FUNCTIONS):
                    yield f"class {owner.__name__}", name, value
    for i, p in enumerate(weights):
        if type(p) not in (Tensor, nn.Parameter):
            continue  # what belongs to the kind of tensor is not the optimizer's
        yield from ((f"parameter {i}", name, value) for name, value in vars(p).items())


def _size(value: Any) -> int | None:
    return len(value) if isinstance(value, Mapping | list | tuple | deque | set) else None


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray | numpy.generic)
