"""Which passes count in BatchNorm's running statistics: each batch exactly once.

A frozen pass still normalizes with the statistics of its own batch; it only leaves the running
buffers (and `num_batches_tracked`) alone. Setting `momentum = 0` instead would still count batches,
and putting the layer in eval mode would change the function that is differentiated.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from sampa.torch_private import BatchNormLayer


def batch_norms(model: nn.Module) -> list[BatchNormLayer]:
    """The layers of `model` that keep running statistics."""
    return [m for m in model.modules() if isinstance(m, BatchNormLayer) and m.track_running_stats]


@contextmanager
def frozen_statistics(model: nn.Module | None) -> Iterator[None]:
    """Leave running statistics alone inside the block, and put the layers back on the way out."""
    with _overridden(model, (BatchNormLayer,), "track_running_stats", False):
        yield


@contextmanager
def evaluation_mode(model: nn.Module | None) -> Iterator[None]:
    """Let all layers behave as in evaluation inside the block: BatchNorm, dropout, attention."""
    with _overridden(model, (nn.Module,), "training", False):
        yield


@contextmanager
def _overridden(
    model: nn.Module | None, kinds: tuple[type, ...], attribute: str, value: Any
) -> Iterator[None]:
    """Set an attribute of the layers in training, and put it back whatever happens.

    Without a model (an optimizer built without an executor) the layers are found as they run.
    """
    changed: list[tuple[nn.Module, Any]] = []
    visited: set[nn.Module] = set()

    def override(module: nn.Module) -> None:
        if isinstance(module, kinds) and module.training and getattr(module, attribute) != value:
            changed.append((module, getattr(module, attribute)))
            setattr(module, attribute, value)

    def override_below(module: nn.Module, _inputs: Any) -> None:
        # A compiled model calls this once, for itself, before its layers run inside the graph.
        if torch.compiler.is_compiling() or module in visited:
            return
        for layer in module.modules():
            visited.add(layer)
            override(layer)

    handle = register_module_forward_pre_hook(override_below) if model is None else None
    for module in [] if model is None else model.modules():
        override(module)
    try:
        yield
    finally:
        if handle is not None:
            handle.remove()
        for module, before in changed:
            setattr(module, attribute, before)
