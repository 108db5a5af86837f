"""Lightning: a strategy that hands `training_step` and the batch to sampa's optimizers.

`configure_optimizers` returns a sampa optimizer, and `training_step` stays as it is:

    trainer = Trainer(strategy=SharpnessAwareStrategy(), devices=2)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor
from torch.optim import Optimizer

from sampa.execution.distribute import distribute
from sampa.execution.executor import Executor
from sampa.integrations.ranks import load_whole_state, whole_state
from sampa.optimizer import SharpnessAware
from sampa.options import default_options


class SharpnessAwareStrategy(DDPStrategy):
    """Trains with sampa's optimizers, on one process or several.

    Args:
        branches: How many gradients of a step are computed at once, on as many processes; the
            other processes divide the batches. As many as there are processes, if that is fewer.
        distribute: Other keywords of `sampa.distribute`.
        **keywords: Those of Lightning's `DDPStrategy` that are not about DDP itself.
    """

    def __init__(
        self, branches: int = 2, distribute: dict[str, Any] | None = None, **keywords: Any
    ) -> None:
        super().__init__(**keywords)
        self._branches = branches
        self._distribute = distribute or {}
        self._executor: Executor | None = None
        self._incoming: tuple[Any, int] | None = None
        self._wanted: tuple[Any, int] | None = None  # what training_step is to see instead
        self._loss: Tensor | None = None

    # ---- the step ----------------------------------------------------------------------------

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        super().on_train_batch_start(batch, batch_idx)
        self._incoming = (batch, batch_idx)

    def optimizer_step(
        self,
        optimizer: Optimizer,
        closure: Callable[[], Any],
        model: Any = None,
        **kwargs: Any,
    ) -> Any:
        if not isinstance(optimizer, SharpnessAware):
            return super().optimizer_step(optimizer, closure, model, **kwargs)
        assert self.lightning_module is not None
        if not self.lightning_module.automatic_optimization:
            return self._manual_step(optimizer, closure, **kwargs)
        parts = self.lightning_module.trainer.accumulate_grad_batches
        if parts != 1:
            raise ValueError(
                f"accumulate_grad_batches must be 1, got {parts}: each gradient of a step is that "
                f"of the whole batch; let the loader yield batches {parts} times as large and pass "
                f"accumulate={parts} to the optimizer, which cuts them"
            )
        run = iter([closure])  # the first pass, at unperturbed weights, is the one that counts

        def loss_fn(batch: tuple[Any, int]) -> Tensor:
            counting = next(run, None)
            with self._evaluating(batch, logs=counting is not None):
                # A call of Lightning's closure leaves its result for the loop.
                (counting or getattr(closure, "closure", closure))()
            if self._loss is None:
                raise RuntimeError("training_step must return the loss, got None")
            return self._loss

        return optimizer.step(loss_fn, self._incoming)

    def _manual_step(self, optimizer: SharpnessAware, loss_fn: Any, **kwargs: Any) -> Any:
        if "batch" not in kwargs:
            raise TypeError(
                "step needs the batch in manual optimization: write "
                "self.optimizers().step(loss_fn, batch=batch), where loss_fn returns the loss of "
                "a batch and calls no backward"
            )
        return optimizer.step(lambda batch: self._through(loss_fn, batch), kwargs["batch"])

    @contextmanager
    def _evaluating(self, batch: tuple[Any, int], *, logs: bool) -> Iterator[None]:
        """Let the closure see this batch, and leave gradients to sampa."""
        module: Any = self.lightning_module
        self._wanted, self._loss = batch, None
        module.optimizer_zero_grad = lambda *_, **__: None  # those of micro-batches add up
        if not logs:
            module.log = lambda *_, **__: None
        try:
            yield
        finally:
            self._wanted = None
            for name in ("log", "optimizer_zero_grad"):
                vars(module).pop(name, None)

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        module = self.lightning_module
        assert module is not None
        if self._wanted is not None:
            args = self._wanted[: len(args)]
        elif not module.automatic_optimization:  # its optimizers call the model themselves
            with self.precision_plugin.train_step_context():
                return module.training_step(*args, **kwargs)
        return super().training_step(*args, **kwargs)

    def backward(self, closure_loss: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if self._wanted is None:
            return super().backward(closure_loss, *args, **kwargs)
        self._loss = closure_loss
        return closure_loss

    def _through(self, function: Callable[[Any], Any], batch: Any) -> Any:
        """Call a function as the forward pass of `executor.model`, which exchanges gradients."""
        module: Any = self.lightning_module
        if self.model is module:
            return function(batch)
        forward = module.forward

        def instead(batch: Any) -> Any:
            module.forward = forward
            return function(batch)

        module.forward = instead
        try:
            assert self.model is not None
            return self.model(batch)
        finally:
            module.forward = forward

    # ---- model and optimizers ----------------------------------------------------------------

    @property
    def executor(self) -> Executor:
        """What computes the gradients, while `fit` runs."""
        assert self._executor is not None
        return self._executor

    @property
    def branches(self) -> int:
        return min(self._branches, self.world_size)

    def configure_ddp(self) -> None:
        """Distribute the model in place of wrapping it."""
        assert self.lightning_module is not None
        self._executor = distribute(self.lightning_module, self.branches, **self._distribute)
        self.model = self._executor.model

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
        module = self.lightning_module
        stage = module.trainer.state.stage if module is not None else None
        if stage is not None and (stage.evaluating or stage == "sanity_check"):
            return super().distributed_sampler_kwargs
        data_ranks = self.world_size // self.branches
        return {"num_replicas": data_ranks, "rank": self.global_rank % data_ranks}

    # ---- buffers and checkpoints -------------------------------------------------------------

    def _sync_buffers(self) -> None:
        if self._executor is not None:
            self._executor.sync_buffers()

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
        self._executor = None
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
            if last is not None:
                told = {"sharpness": last.sharpness, "cosine": last.cosine}
                told |= {"updates": last.step, "skips": last.skips}
                for name, value in told.items():
                    if value is not None:
                        pl_module.log(self.prefix + name, float(value))
