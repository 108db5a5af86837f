"""Kernels and bytes, counted exactly: what goes into and comes out of every operator."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

NO_TRAFFIC = ("aten::empty", "aten::new_empty", "aten::detach")
OVERWRITES = ("aten::copy_", "aten::_foreach_copy_", "aten::zero_", "aten::fill_")


class Counter(TorchDispatchMode):
    """Counts the operators that run inside the block, and the bytes that they read and write.

    Views move nothing. How often a value really crosses the memory bus is the cache's affair.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kernels = 0
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not func.is_view and not func.name().startswith(NO_TRAFFIC):
            self.kernels += 1
            self.bytes += _read(func, args, kwargs) + _written(func, args, result)
        return result


def _read(func: Any, args: Any, kwargs: Any) -> int:
    overwritten = _changed(func, args) if func.name().startswith(OVERWRITES) else []
    given = {name: value for name, value in (kwargs or {}).items() if name != "out"}
    return _size((args, given)) - _size(overwritten)


def _written(func: Any, args: Any, result: Any) -> int:
    """What it changes in place, or what it makes."""
    return _size(_changed(func, args) or result)


def _changed(func: Any, args: Any) -> list[Any]:
    """The arguments that an operator writes to, by its schema."""
    pairs = zip(args, func._schema.arguments, strict=False)
    return [value for value, a in pairs if a.alias_info is not None and a.alias_info.is_write]


def _size(values: Any) -> int:
    return sum(t.nbytes for t in tree_leaves(values) if isinstance(t, Tensor))
