"""Lightning: a strategy that hands `training_step` and the batch to sampa's optimizers.

`configure_optimizers` returns a sampa optimizer, and `training_step` stays as it is:

    trainer = Trainer(strategy=SharpnessAwareStrategy(), devices=2)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor
from torch.optim import Optimizer

from sampa.execution.distribute import distribute
from sampa.execution.executor import Executor
from sampa.integrations.ranks import load_whole_state, whole_state
from sampa.integrations.replaced import nothing, replaced
from sampa.optimizer import SharpnessAware
from sampa.options import default_options


class SharpnessAwareStrategy(DDPStrategy):
    """Trains with sampa's optimizers, on one process or several.

    Args:
        branches: How many gradients of a step are computed at once, on as many processes; the
            other processes divide the batches. As many as there are processes, if that is fewer.
        distribute: Other keywords of `sampa.distribute`.
        **keywords: Those of Lightning's `DDPStrategy` that are not about DDP itself.

    Attributes:
        executor: What computes the gradients, while `fit` runs.
    """

    def __init__(
        self, branches: int = 2, distribute: dict[str, Any] | None = None, **keywords: Any
    ) -> None:
        super().__init__(**keywords)
        self._branches = branches
        self._distribute = distribute or {}
        self.executor: Executor | None = None
        self._window: list[tuple[Any, int]] = []  # the batches since the last step
        self._wanted: tuple[Any, int] | None = None  # what training_step is to see instead
        self._loss: Tensor | None = None

    # ---- the step ----------------------------------------------------------------------------

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        super().on_train_batch_start(batch, batch_idx)
        if batch_idx % self._module.trainer.accumulate_grad_batches == 0:
            self._window = []
        self._window.append((batch, batch_idx))

    def optimizer_step(
        self, optimizer: Optimizer, closure: Callable[[], Any], model: Any = None, **kwargs: Any
    ) -> Any:
        if not isinstance(optimizer, SharpnessAware):
            return super().optimizer_step(optimizer, closure, model, **kwargs)
        if not self._module.automatic_optimization:
            return self._manual_step(optimizer, closure, **kwargs)
        # The first pass, at unperturbed weights, is the one that counts.
        first_pass = iter(range(len(self._window) * optimizer.options.accumulate))

        def loss_fn(part: tuple[Any, int]) -> Tensor:
            counts = next(first_pass, None) is not None
            quiet = {"optimizer_zero_grad": nothing} | ({} if counts else {"log": nothing})
            self._loss = None
            # Gradients of micro-batches add up. A call of Lightning's closure leaves its result for
            # the loop, and for us the loss, divided by accumulate_grad_batches.
            with replaced(self, _wanted=part), replaced(self._module, **quiet):
                (closure if counts else getattr(closure, "closure", closure))()
            if self._loss is None:
                raise RuntimeError("training_step must return the loss, got None")
            return self._loss

        return optimizer.step(loss_fn, self._window, in_parts=True)

    def _manual_step(self, optimizer: SharpnessAware, loss_fn: Any, **kwargs: Any) -> Any:
        if "batch" not in kwargs:
            raise TypeError(
                "step needs the batch in manual optimization: write "
                "self.optimizers().step(loss_fn, batch=batch), where loss_fn returns the loss of "
                "a batch and calls no backward"
            )
        return optimizer.step(lambda batch: self._through(loss_fn, batch), **kwargs)

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        if self._wanted is not None:
            args = self._wanted[: len(args)]
        elif self._collects:  # the loss is known at the end of the window
            return torch.full((), math.nan, device=self.root_device)
        elif not self._module.automatic_optimization:  # its optimizers call the model themselves
            with self.precision_plugin.train_step_context():
                return self._module.training_step(*args, **kwargs)
        return super().training_step(*args, **kwargs)

    def backward(self, closure_loss: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if not self._collects:
            return super().backward(closure_loss, *args, **kwargs)
        self._loss = closure_loss
        return closure_loss

    @property
    def _module(self) -> LightningModule:
        assert self.lightning_module is not None
        return self.lightning_module

    @property
    def _collects(self) -> bool:
        """Whether batches are kept until the step, which evaluates them."""
        is_ours = any(isinstance(optimizer, SharpnessAware) for optimizer in self.optimizers)
        return is_ours and self._module.automatic_optimization

    def _through(self, function: Callable[[Any], Any], batch: Any) -> Any:
        """Call a function as the forward pass of `executor.model`, which exchanges gradients."""
        module, model = self._module, self.model
        if model is None or model is module:
            return function(batch)
        forward = module.forward

        def instead(batch: Any) -> Any:
            with replaced(module, forward=forward):
                return function(batch)

        with replaced(module, forward=instead):
            return model(batch)

    # ---- model and optimizers ----------------------------------------------------------------

    @property
    def branches(self) -> int:
        return min(self._branches, self.world_size)

    def configure_ddp(self) -> None:
        """Distribute the model in place of wrapping it."""
        self.executor = distribute(self._module, self.branches, **self._distribute)
        self.model = self.executor.model

    def setup_optimizers(self, trainer: Trainer) -> None:
        if trainer.gradient_clip_val and trainer.gradient_clip_algorithm == "value":
            raise ValueError(
                'gradient_clip_algorithm must be "norm", got "value"; sampa clips the norm of the '
                "gradient that the method hands on"
            )
        scaler = getattr(self.precision_plugin, "scaler", None)
        clip = trainer.gradient_clip_val or None
        with default_options(executor=self.executor, max_norm=clip, scaler=scaler):
            super().setup_optimizers(trainer)

    @property
    def distributed_sampler_kwargs(self) -> dict[str, Any]:
        """Branches see the same batches in training; all processes divide those of evaluation."""
        trainer = self._module.trainer
        if trainer.evaluating or trainer.sanity_checking:
            return super().distributed_sampler_kwargs
        data_ranks = self.world_size // self.branches
        return {"num_replicas": data_ranks, "rank": self.global_rank % data_ranks}

    # ---- buffers and checkpoints -------------------------------------------------------------

    def _sync_buffers(self) -> None:
        if self.executor is not None:
            self.executor.sync_buffers()

    def on_validation_start(self) -> None:
        self._sync_buffers()
        super().on_validation_start()

    def on_train_end(self) -> None:
        self._sync_buffers()
        super().on_train_end()

    def lightning_module_state_dict(self) -> dict[str, Any]:
        self._sync_buffers()
        return super().lightning_module_state_dict()

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        inner = getattr(optimizer, "optimizer", optimizer)
        is_ours = isinstance(inner, SharpnessAware)
        return whole_state(inner) if is_ours else super().optimizer_state(optimizer)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        for optimizer, state in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            if isinstance(optimizer, SharpnessAware):
                load_whole_state(optimizer, state, self.batch_to_device)
            else:
                optimizer.load_state_dict(state)

    def teardown(self) -> None:
        self.model = self.lightning_module
        self.executor = None
        super().teardown()


class StepMonitor(Callback):
    """Logs what a step tells about itself (`optimizer.last`), below a prefix."""

    def __init__(self, prefix: str = "sampa/") -> None:
        self.prefix = prefix

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, *args: Any, **kwargs: Any
    ) -> None:
        for optimizer in trainer.optimizers:
            last = optimizer.last if isinstance(optimizer, SharpnessAware) else None
            for name, value in last.numbers().items() if last is not None else ():
                pl_module.log(self.prefix + name, value)
