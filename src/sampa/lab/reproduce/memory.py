"""Peak memory of a step, counted exactly: the bytes of all tensors that are alive at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from sampa.torch_private import TorchDispatchMode, tree_leaves


class Living(TorchDispatchMode):
    """Follows every storage that an operation reads or makes, as long as it lives.

    What existed before and is not touched (the batch of another step, say) is not counted.

    Attributes:
        peak: The most bytes at any time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        before = len(self._alive)
        for leaf in tree_leaves((args, out)):
            if isinstance(leaf, torch.Tensor):
                storage = leaf.untyped_storage()
                reference = StorageWeakRef(storage)
                self._alive[reference.cdata] = (reference, storage.nbytes())
        if len(self._alive) > before:
            self._count()
        return out

    def _count(self) -> None:
        self._alive = {k: v for k, v in self._alive.items() if not v[0].expired()}
        self.peak = max(self.peak, sum(nbytes for _, nbytes in self._alive.values()))


def peak_bytes(step: Callable[[], Any]) -> int:
    """The peak over two steps: the second has what the first left behind."""
    living = Living()
    with living:
        step()
        step()
    return living.peak
