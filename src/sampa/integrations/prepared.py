"""What Accelerate's prepared objects are with sampa: the optimizer, a scheduler, a loader."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from accelerate.data_loader import BatchSamplerShard, DataLoaderShard, IterableDatasetShard
from accelerate.optimizer import AcceleratedOptimizer
from accelerate.scheduler import AcceleratedScheduler
from accelerate.utils import send_to_device
from torch import Tensor
from torch.utils.data import DataLoader

from sampa.execution.evaluate import LossFn, checked_loss
from sampa.integrations.ranks import Layout, load_whole_state, whole_state
from sampa.loss import Closure, Loss
from sampa.messages import refuse_closure
from sampa.optimizer import SharpnessAware
from sampa.record import StepRecord


class PreparedOptimizer(AcceleratedOptimizer):
    """What `accelerator.prepare` makes of a sampa optimizer; it is used in the same way.

    Inside of `accelerator.accumulate` the batches of an update are collected: the last one makes
    the step with all of them. Its `state_dict` has all ranks' parts of a held batch: with several
    data ranks all call it.
    """

    optimizer: SharpnessAware

    def __init__(self, optimizer: SharpnessAware, device: torch.device) -> None:
        super().__init__(optimizer, device_placement=False, scaler=None)
        self._device = device
        self._is_accelerate_prepared = True
        self._window: list[Any] = []  # the batches since the last step

    def step(self, loss_fn: LossFn | None = None, batch: Any = None) -> Tensor | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Make the step, if the batch is the last one of an update; the loss is None if not."""
        parts = self.gradient_state.num_steps
        if batch is None and parts > 1:
            refuse_closure(f"gradient_accumulation_steps={parts} adds up several batches")
        if batch is None or loss_fn is None:
            return self.optimizer.step(loss_fn, batch)
        window = self.collected(batch)
        if window is None:
            return None
        return self.optimizer.step(divided(loss_fn, parts), window, in_parts=True)

    def collected(self, batch: Any) -> list[Any] | None:
        """The batches of an update, if this is the last of them."""
        self._window.append(batch)
        if not self.gradient_state.sync_gradients:
            return None
        window, self._window = self._window, []
        return window

    @property
    def last(self) -> StepRecord | None:
        return self.optimizer.last

    @property
    def step_was_skipped(self) -> bool:
        """Whether the last step made no update, such as SAMPa's first: schedulers wait then."""
        last = self.optimizer.last
        return last is not None and not last.updated

    def state_dict(self) -> dict[str, Any]:
        return whole_state(self.optimizer)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        load_whole_state(self.optimizer, state_dict, lambda b: send_to_device(b, self._device))


class PreparedScheduler(AcceleratedScheduler):
    """Makes as many steps at once as there are data ranks, which is how Accelerate counts."""

    def __init__(self, prepared: AcceleratedScheduler, steps: int) -> None:
        self.__dict__.update(vars(prepared))
        self._steps = 1 if self.split_batches or not self.step_with_optimizer else steps
        self.split_batches = True  # so that Accelerate makes one of them at a time

    def step(self, *args: Any, **kwargs: Any) -> None:
        for _ in range(self._steps if self.gradient_state.sync_gradients else 1):
            if self.scheduler._step_count <= getattr(self.scheduler, "total_steps", float("inf")):
                super().step(*args, **kwargs)


def divided(loss_fn: LossFn, parts: int) -> LossFn:
    """The function of one of several batches, as `accelerator.backward` divides its loss."""
    if parts == 1 or isinstance(loss_fn, Closure):  # which calls `accelerator.backward`
        return loss_fn

    def part(batch: Any) -> Loss:
        loss = checked_loss(loss_fn(batch))
        assert loss.value is not None
        return replace(loss, value=loss.value / parts)

    return part


def divide_by_data_rank(loader: DataLoader[Any], layout: Layout) -> None:
    """Let a prepared loader give the same batches to all branches, and parts to data ranks.

    Raises:
        ValueError: If the first process reads for all of them.
    """
    shard: Any = None
    if isinstance(loader, DataLoaderShard):
        both = (loader.batch_sampler, loader.sampler, loader.dataset)
        kinds = (BatchSamplerShard, IterableDatasetShard)
        shard = next((part for part in both if isinstance(part, kinds)), None)
    if shard is None:
        raise ValueError(
            "every process must read its own batches, got a loader that the first one reads for "
            "all; set dispatch_batches=False (in the accelerator's DataLoaderConfiguration, or in "
            "the accelerator_config of TrainingArguments)"
        )
    shard.num_processes, shard.process_index = layout.data_ranks, layout.data_rank
    if layout.data_ranks == 1 and isinstance(shard, BatchSamplerShard):
        shard.even_batches = False  # a last batch that is short stays so, as in one process
