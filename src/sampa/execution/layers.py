"""What is known of the user's model: its layers, given or seen as they run.

An optimizer built without an executor has parameters but no model. Layers are then noticed in the
forward passes, which is enough to tell a BatchNorm's weight from a convolution's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from sampa.method import ParameterInfo
from sampa.torch_private import BatchNormLayer, InstanceNormLayer

NORMALIZATIONS = (BatchNormLayer, InstanceNormLayer, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)


class Layers:
    """The layers of a model, or those that were seen running."""

    def __init__(self, model: nn.Module | None) -> None:
        self.model = model
        self._seen: dict[nn.Module, None] = {}

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Notice the layers that run inside the block, for want of a model."""
        handle = register_module_forward_pre_hook(self._notice)
        try:
            yield
        finally:
            handle.remove()

    def describe(self, weights: list[Tensor]) -> tuple[ParameterInfo, ...] | None:
        """What is known of each parameter; None if one belongs to no layer given or seen."""
        known: dict[Tensor, ParameterInfo] = {}
        for prefix, module in self._named_modules():
            for name, p in module.named_parameters(recurse=False):
                path = f"{prefix}.{name}" if prefix else name
                known.setdefault(p, ParameterInfo(path, is_normalization_layer(module)))
        return tuple(known[p] for p in weights) if all(p in known for p in weights) else None

    def float_buffers(self) -> list[Tensor]:
        """The floating-point buffers, such as BatchNorm's running mean and variance."""
        return [
            b
            for _, module in self._named_modules()
            for b in module.buffers(recurse=False)
            if b.is_floating_point()
        ]

    def _named_modules(self) -> Iterator[tuple[str, nn.Module]]:
        if self.model is not None:
            yield from self.model.named_modules()
        else:
            yield from (("", module) for module in self._seen)

    def _notice(self, module: nn.Module, _inputs: Any) -> None:
        # A compiled model is noticed as a whole, before its layers run inside the graph.
        if not torch.compiler.is_compiling() and module not in self._seen:
            self._seen.update(dict.fromkeys(module.modules()))


def is_normalization_layer(module: nn.Module) -> bool:
    """By type; layers written elsewhere are known by the usual ending of their class name."""
    return isinstance(module, NORMALIZATIONS) or type(module).__name__.endswith("Norm")
