"""One probe on one device: save the weights, move, forward and backward, restore by copy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler

from sampa.batches import split
from sampa.noise import seeded
from sampa.norm_stats import frozen_statistics
from sampa.preview import clear_gradients
from sampa.probes import Batch, Move, Probe
from sampa.vectors import Vector, Weights, copy_

LossFn = Callable[[Any], Tensor]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a probe gives: the gradient, and the loss at the point where it was taken."""

    gradient: Vector
    loss: Tensor


class Snapshot:
    """x_t, saved once a step at most and copied back after every move.

    Copying is exact. Adding an offset and subtracting it again is not: replicas would drift apart.
    """

    def __init__(self) -> None:
        self._saved: list[Tensor] = []
        self._is_current = False

    @contextmanager
    def moved(self, weights: Weights, move: Move | None) -> Iterator[None]:
        """Hold the weights where `move` takes them inside the block, at x_t after it."""
        if move is None:
            yield
            return
        trainable = [p for p in weights if p.requires_grad]
        self._save(trainable)
        try:
            with torch.no_grad():
                move(weights)
            yield
        finally:
            with torch.no_grad():
                copy_(trainable, self._saved)

    def invalidate(self) -> None:
        """Say that the weights are no longer x_t."""
        self._is_current = False

    def _save(self, trainable: Weights) -> None:
        if self._is_current:
            return
        same = len(self._saved) == len(trainable) and all(
            s.shape == p.shape and s.dtype == p.dtype and s.device == p.device
            for s, p in zip(self._saved, trainable, strict=True)
        )
        if same:
            copy_(self._saved, [p.detach() for p in trainable])
        else:
            self._saved = [p.detach().clone() for p in trainable]
        self._is_current = True


@dataclass(frozen=True)
class Evaluator:
    """All that one call of `step` needs to answer a probe on this device.

    Attributes:
        loss_fn: The user's function from a batch to a scalar loss with its graph.
        batches: The batch behind each role.
        weights: The parameters, in the optimizer's order.
        model: Where BatchNorm layers are looked for; None if unknown.
        seed_of: The seed of a probe's randomness, from the probe and its number in the step.
        accumulate: Micro-batches per probe.
        scaler: Scales the loss where gradients would underflow in half precision.
    """

    loss_fn: LossFn
    batches: Mapping[Batch, Any]
    weights: Weights
    model: nn.Module | None
    seed_of: Callable[[Probe, int], int]
    snapshot: Snapshot
    accumulate: int = 1
    scaler: GradScaler | None = None
    devices: frozenset[torch.device] = field(default_factory=frozenset)

    def backward(
        self,
        probe: Probe,
        number: int,
        sync: Callable[[bool], AbstractContextManager[None]] = lambda last: nullcontext(),
        announce: Callable[[Tensor], None] = lambda loss: None,
    ) -> Tensor:
        """Leave the probe's gradient in `.grad` and return its loss.

        Args:
            probe: What to evaluate.
            number: Its number in the step, for the randomness.
            sync: Entered around each micro-batch, told whether it is the last.
            announce: Told the loss before the last backward pass, which an exchange overlaps.
        """
        statistics = nullcontext() if probe.counts_statistics else frozen_statistics(self.model)
        clear_gradients(self.weights)
        with (
            self.snapshot.moved(self.weights, probe.move),
            statistics,
            seeded(self.seed_of(probe, number), self.devices),
            torch.enable_grad(),
        ):
            return self._accumulate(self.batches[probe.batch], sync, announce)

    def _accumulate(
        self,
        batch: Any,
        sync: Callable[[bool], AbstractContextManager[None]],
        announce: Callable[[Tensor], None],
    ) -> Tensor:
        total: Tensor | None = None
        micro_batches = split(batch, self.accumulate)
        for i, (micro_batch, share) in enumerate(micro_batches):
            is_last = i == len(micro_batches) - 1
            with sync(is_last):
                loss = checked_loss(self.loss_fn(micro_batch))
                loss = loss if share == 1.0 else loss * share
                total = loss.detach() if total is None else total + loss.detach()
                if is_last:
                    announce(total)
                (loss if self.scaler is None else self.scaler.scale(loss)).backward()
        assert total is not None
        return total


def checked_loss(loss: Any) -> Tensor:
    """The loss as a 0-dimensional tensor that can be differentiated.

    Raises:
        TypeError: If it is not a tensor.
        ValueError: If it is not a scalar, or has no graph.
    """
    if not isinstance(loss, Tensor):
        raise TypeError(
            f"loss_fn must return the loss as a tensor, got {type(loss).__name__}; "
            "write `return F.cross_entropy(model(x), y)` without .item() and without a tuple"
        )
    if loss.numel() != 1:
        raise ValueError(
            f"loss_fn must return a scalar, got shape {tuple(loss.shape)}; "
            "average over the batch with loss.mean()"
        )
    if not loss.requires_grad:
        raise ValueError(
            "loss_fn must return the loss with its graph, got a tensor that needs no gradient; "
            "do not detach it, compute it under no_grad, or call backward in it: sampa does that"
        )
    return loss.reshape(())
