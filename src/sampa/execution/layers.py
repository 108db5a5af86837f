"""What is known of the user's model: its layers, given or seen as they run, and their buffers.

An optimizer built without an executor has parameters but no model. Layers are then noticed in the
first forward pass, which is enough to tell a BatchNorm's weight from a convolution's.

A batch counts once in what a model keeps in buffers, such as BatchNorm's running statistics: passes
that do not count put all buffers back. (Switching layers off instead would change what a compiled
model is compiled for, and buffers of other layers have no switch.)
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.nn.parameter import is_lazy

from sampa.method import ParameterInfo
from sampa.torch_private import (
    BatchNormLayer,
    InstanceNormLayer,
    buffers_in,
    children_in,
    write_count,
)
from sampa.vectors.vector import Vector, Weights, copy_

NORMALIZATIONS = (BatchNormLayer, InstanceNormLayer, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
# Buffers of more bytes are not copied once a pass has left them alone: tables, masks of attention.
LARGE_BUFFER = 1 << 16

Place = tuple[nn.Module, str]
"""A buffer: its layer, and its name in it."""


class Buffer(NamedTuple):
    """A buffer as it was."""

    place: Place
    tensor: Tensor
    version: int
    values: Tensor | None  # a copy; None where it is not expected to change

    def was_touched(self) -> bool:
        """Whether it was written to, or another tensor is in its place.

        torch's own batch norm writes to its buffers without telling.
        """
        return now_at(self.place) is not self.tensor or _version(self.tensor) != self.version

    def has_other_values(self) -> bool:
        """The same by looking, for which the host waits."""
        is_same = self.values is not None and torch.equal(self.tensor, self.values)
        return self.was_touched() or not is_same


class Layers:
    """The layers of a model, or those that were seen running.

    Attributes:
        model: The whole model, if it is known.
        has_learned: Whether a pass has shown which buffers change.
        changing: Those that did, and those of layers that did not train then, which may later.
        watched: Of the others, those of which it must be known at once if a pass changes them.
    """

    def __init__(self, model: nn.Module | None) -> None:
        self.model = model
        self.changing: set[Place] = set()
        self.watched: Sequence[Place] = ()
        self._steady: set[Place] = set()  # large buffers that passes leave alone
        self.has_learned = False
        self._seen: dict[nn.Module, None] = {}
        self._looked_for: list[int] = []  # the weights whose layers were looked for
        self._is_isolated = False
        self._probes = 1  # of this round
        self._counted: list[Buffer] = []  # what the pass that counts left in this round
        self._running: Kept | None = None  # of a pass that tells which buffers change

    # ---- what is known -----------------------------------------------------------------------

    def describe(self, weights: list[Tensor]) -> tuple[ParameterInfo, ...] | None:
        """What is known of each parameter; None if one belongs to no layer given or seen."""
        known: dict[Tensor, ParameterInfo] = {}
        unnamed = (("", module) for module in self._seen)
        for prefix, module in unnamed if self.model is None else self.model.named_modules():
            for name, p in module.named_parameters(recurse=False):
                path = f"{prefix}.{name}" if prefix else name
                known.setdefault(p, ParameterInfo(path, is_normalization_layer(module)))
        return tuple(known[p] for p in weights) if all(p in known for p in weights) else None

    def float_buffers(self) -> list[Tensor]:
        """The floating-point buffers, such as BatchNorm's running mean and variance."""
        return [b for _, b in buffers_of(self._modules()) if b.is_floating_point()]

    def saved_buffers(self) -> list[Buffer]:
        """All buffers as they are now, to be put back later."""
        return copied(buffers_of(self._modules()), self._steady)

    def _modules(self) -> list[nn.Module]:
        return [*self._seen] if self.model is None else all_layers(self.model)

    # ---- passes ------------------------------------------------------------------------------

    @contextmanager
    def one_round(self, probes: int, at_once: int = 1) -> Iterator[None]:
        """Several passes, which all start with the same buffers, as if they ran at once.

        Args:
            probes: How many passes answer the round, on all ranks.
            at_once: How many of them run at the same time, one on each branch.
        """
        self._probes, self._is_isolated = probes, probes > at_once
        try:
            yield
            put_back(self._counted)
        finally:
            self._probes, self._is_isolated, self._counted = 1, False, []

    @contextmanager
    def one_pass(
        self,
        weights: Weights = (),
        *,
        counts: bool = True,
        evaluation: bool = False,
        values: Vector | None = None,
    ) -> Iterator[None]:
        """A forward and backward pass.

        Args:
            weights: Whose layers are looked for, if there is no model.
            counts: Whether buffers keep what the pass leaves in them.
            evaluation: Whether layers behave as in evaluation: BatchNorm, dropout, attention.
            values: Other values for the floating-point buffers, if it does not count.
        """
        puts_back = not counts or self._is_isolated
        notes_buffers = puts_back or not self.has_learned
        steady = self._steady if self.has_learned and values is None else ()
        kept = Kept(evaluation, puts_back, notes_buffers, steady)
        with self._noticing(kept, weights):
            try:
                kept.take(self._modules() if evaluation or notes_buffers else [])
                if values is not None:
                    copy_(self.float_buffers(), values)
                elif self.has_learned:
                    kept.watch(() if notes_buffers else {*self.watched, *self._steady})
                    self._running = kept
                yield
                if values is None and (self.has_learned or not evaluation):
                    self._learn(kept)
                    if puts_back:
                        _refuse_created(kept)
                if counts and puts_back:
                    places = [b.place for b in kept.buffers if b.values is not None]
                    now = ((place, now_at(place)) for place in places)
                    self._counted = copied((place, b) for place, b in now if b is not None)
            finally:
                self._running = None
                kept.put_back()

    def learn(self) -> None:
        """Note which buffers the pass that is running has changed so far."""
        if self._running is not None:
            self._learn(self._running)

    def _learn(self, kept: Kept) -> None:
        """Note which buffers the pass has changed, and which large ones it has not.

        Raises:
            RuntimeError: If there is one that cannot be put back.
        """
        is_first, self.has_learned = not self.has_learned, True
        for buffer in kept.buffers:
            if buffer.place in self.changing:
                continue
            layer, _ = buffer.place
            if buffer.has_other_values() if is_first else buffer.was_touched():
                self.changing.add(buffer.place)
                if buffer.place in self._steady and (kept.puts_back or self._probes > 1):
                    _refuse_large(buffer)
                self._steady.discard(buffer.place)
            elif is_first and not layer.training:
                self.changing.add(buffer.place)
            elif is_first and buffer.tensor.nbytes > LARGE_BUFFER:
                self._steady.add(buffer.place)

    @contextmanager
    def _noticing(self, kept: Kept, weights: Weights) -> Iterator[None]:
        """Notice the layers that run inside the block, for want of a model.

        Only once for the same weights: a hook on all modules makes compiled ones compile again.
        """
        looked_for = [id(p) for p in weights if p.requires_grad] if self.model is None else []
        if looked_for == self._looked_for:
            yield
            return

        def notice(module: nn.Module, _inputs: Any) -> None:
            # A compiled model is noticed as a whole, before its layers run inside the graph.
            if not torch.compiler.is_compiling() and module not in self._seen:
                layers = [m for m in module.modules() if m not in self._seen]
                self._seen.update(dict.fromkeys(layers))
                kept.take(layers)

        handle = register_module_forward_pre_hook(notice)
        try:
            yield
            self._looked_for = looked_for
        finally:
            handle.remove()


class Kept:
    """What a pass changes in layers and is put back: their mode, and their buffers.

    Attributes:
        puts_back: Whether buffers are put back.
        buffers: Those before the pass.
        layers: Those whose buffers they are.
    """

    def __init__(
        self, evaluation: bool, puts_back: bool, notes_buffers: bool, steady: Container[Place]
    ) -> None:
        self.puts_back = puts_back
        self.buffers: list[Buffer] = []
        self.layers: list[nn.Module] = []
        self._evaluation = evaluation
        self._notes_buffers = notes_buffers
        self._steady = steady
        self._switched: list[nn.Module] = []  # to evaluation

    def take(self, layers: Sequence[nn.Module]) -> None:
        """Keep what the pass may change in these layers, and switch their mode."""
        if self._notes_buffers:
            self.layers += layers
            self.buffers += copied(buffers_of(layers), self._steady)
        for layer in layers if self._evaluation else []:
            if layer.training:
                self._switched.append(layer)
                layer.training = False

    def watch(self, places: Iterable[Place]) -> None:
        """Keep of these buffers what tells whether the pass writes to them."""
        found = ((place, now_at(place)) for place in places)
        self.buffers += [Buffer(place, b, _version(b), None) for place, b in found if b is not None]

    def put_back(self) -> None:
        for layer in self._switched:
            layer.training = True
        if self.puts_back:
            put_back(self.buffers)


def _refuse_large(buffer: Buffer) -> NoReturn:
    layer, name = buffer.place
    raise RuntimeError(
        f"buffer {name!r} of {type(layer).__name__} changed for the first time, in a round of "
        "several passes or in one that does not count, and cannot be put back: buffers of more "
        f"than {LARGE_BUFFER} bytes (this one has {buffer.tensor.nbytes}) are not copied once the "
        "first training pass has left them alone; let the layer write to it in that pass too "
        f"(`self.{name}.mul_(1)` is enough), and start again from the last checkpoint"
    )


def _refuse_created(kept: Kept) -> None:
    """Raise if the pass made a buffer, which those that do not count would leave behind."""
    found = [place for place, _ in buffers_of(kept.layers)]
    if len(found) > len(kept.buffers):
        known = {buffer.place for buffer in kept.buffers}
        layer, name = next(place for place in found if place not in known)
        raise RuntimeError(
            f"buffer {name!r} of {type(layer).__name__} must have a value before the step, got one "
            "that a pass made, in a round of several or in one that does not count: its batch "
            "would count twice; register it with a tensor when the layer is built, or call the "
            "model once before the first step"
        )


def all_layers(model: nn.Module) -> list[nn.Module]:
    """What `model.modules()` gives, in the same order."""
    found: dict[nn.Module, None] = {}
    waiting = [model]
    while waiting:
        layer = waiting.pop()
        if layer not in found:
            found[layer] = None
            waiting += [m for m in reversed(children_in(layer).values()) if m is not None]
    return [*found]


def buffers_of(layers: Iterable[nn.Module]) -> list[tuple[Place, Tensor]]:
    """All buffers of these layers that have a value."""
    return [
        ((layer, name), buffer)
        for layer in layers
        for name, buffer in buffers_in(layer).items()
        if buffer is not None and not is_lazy(buffer)
    ]


def now_at(place: Place) -> Tensor | None:
    """The buffer at a place; None if it was removed."""
    layer, name = place
    found = buffers_in(layer)
    return found[name] if name in found else None  # noqa: SIM401 - of scripted layers it has no get


def copied(buffers: Iterable[tuple[Place, Tensor]], steady: Container[Place] = ()) -> list[Buffer]:
    """Buffers as they are now, with a copy of those that are not steady."""
    found = list(buffers)
    values = Vector(None if place in steady else b.detach() for place, b in found).clone()
    pairs = zip(found, values, strict=True)
    return [Buffer(place, b, _version(b), copy) for (place, b), copy in pairs]


def _version(t: Tensor) -> int:
    return 0 if t.is_inference() else write_count(t)


def put_back(buffers: Sequence[Buffer]) -> None:
    """Give buffers the tensors and values that were saved."""
    for buffer in buffers:
        if now_at(buffer.place) is not buffer.tensor:
            setattr(*buffer.place, buffer.tensor)
    with torch.no_grad():
        copy_([b.tensor for b in buffers], [b.values for b in buffers])


def batch_norms(model: nn.Module) -> list[BatchNormLayer]:
    """The layers of `model` that keep running statistics."""
    return [m for m in model.modules() if isinstance(m, BatchNormLayer) and m.track_running_stats]


def is_normalization_layer(module: nn.Module) -> bool:
    """By type; layers written elsewhere are known by the usual ending of their class name."""
    return isinstance(module, NORMALIZATIONS) or type(module).__name__.endswith("Norm")
