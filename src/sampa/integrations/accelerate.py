"""Accelerate: an accelerator that prepares sampa's optimizers, with the models they distribute.

It keeps Accelerate from wrapping the model in DistributedDataParallel, whose average would mix the
probes of a step, and from giving different batches to the branches of an executor.
"""

from __future__ import annotations

from typing import Any, NoReturn

from accelerate import Accelerator
from accelerate.scheduler import AcceleratedScheduler
from accelerate.utils import find_batch_size, recursively_apply
from torch import nn
from torch.utils.data import DataLoader

from sampa.execution.executor import Executor
from sampa.integrations.prepared import PreparedOptimizer, PreparedScheduler, divide_by_data_rank
from sampa.integrations.ranks import Layout, layout_of
from sampa.optimizer import SharpnessAware


class SharpnessAwareAccelerator(Accelerator):
    """An `accelerate.Accelerator` for one model that a sampa optimizer trains.

    Example:
        >>> import sampa
        >>> accelerator = SharpnessAwareAccelerator(cpu=True)
        >>> model = torch.nn.Linear(2, 1).to(accelerator.device)
        >>> base = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> optimizer = sampa.SAMPa(base, executor=sampa.distribute(model))
        >>> model, optimizer = accelerator.prepare(model, optimizer)
        >>> loss = optimizer.step(lambda x: model(x).square().mean(), torch.ones(4, 2))
    """

    _executor: Executor | None = None

    @property
    def layout(self) -> Layout:
        """How the ranks are laid out, as soon as the optimizer was prepared."""
        return layout_of(self._executor)

    def prepare(self, *args: Any, device_placement: list[bool] | None = None) -> Any:
        for optimizer in args:
            if isinstance(optimizer, SharpnessAware):
                self._adopt(optimizer)
        return super().prepare(*args, device_placement=device_placement)

    def _adopt(self, optimizer: SharpnessAware) -> None:
        if self.scaler is not None and optimizer.options.scaler is not self.scaler:
            raise ValueError(
                "the optimizer must have the accelerator's scaler for fp16, because the gradients "
                "of a step are unscaled one by one; build it with scaler=accelerator.scaler"
            )
        self._executor = optimizer.executor

    def prepare_model(
        self, model: nn.Module, device_placement: bool | None = None, evaluation_mode: bool = False
    ) -> nn.Module:
        executor = self._executor
        if executor is None or executor.module is not model:
            if executor is not None and model is executor.model:
                return model
            return super().prepare_model(model, device_placement, evaluation_mode)
        if super().prepare_model(model, device_placement, evaluation_mode=True) is not model:
            raise ValueError(
                "the model must be compiled before it is distributed, got an accelerator with a "
                "dynamo_backend; write sampa.distribute(torch.compile(model)) without it"
            )
        wrapped: Any = executor.model
        return wrapped

    def prepare_optimizer(self, optimizer: Any, device_placement: bool | None = None) -> Any:
        if isinstance(optimizer, SharpnessAware):
            optimizer = PreparedOptimizer(optimizer, self.device)
        return super().prepare_optimizer(optimizer, device_placement)

    def prepare_scheduler(self, scheduler: Any) -> Any:
        prepared: Any = super().prepare_scheduler(scheduler)
        if type(prepared) is AcceleratedScheduler:
            prepared = PreparedScheduler(prepared, self.layout.data_ranks)
            self._schedulers[-1] = prepared
        return prepared

    def prepare_data_loader(self, *args: Any, **kwargs: Any) -> DataLoader[Any]:
        loader = super().prepare_data_loader(*args, **kwargs)
        if self.num_processes > 1:
            if self._executor is None:
                raise RuntimeError(
                    "the optimizer must be prepared before loaders, or with them, on several "
                    "processes: its executor knows which of them share a batch; write "
                    "accelerator.prepare(model, optimizer, loader)"
                )
            divide_by_data_rank(loader, self.layout)
        return loader

    def gather_for_metrics(self, input_data: Any, use_gather_object: bool = False) -> Any:
        """All samples once: every branch has seen them."""
        gathered = super().gather_for_metrics(input_data, use_gather_object)
        if self.layout.branches == 1:
            return gathered
        rows = (find_batch_size(input_data) or 1) * self.layout.data_ranks
        return recursively_apply(lambda t: t[:rows], gathered)

    def unwrap_model(self, model: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
        executor = self._executor
        inner = executor.module if executor is not None and model is executor.model else None
        return super().unwrap_model(model if inner is None else inner, *args, **kwargs)

    def save_state(self, *args: Any, **kwargs: Any) -> Any:
        if self._executor is not None:
            self._executor.sync_buffers()
        return super().save_state(*args, **kwargs)

    def clip_grad_norm_(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(
            "gradients cannot be clipped between backward and step: both are inside of "
            "optimizer.step; pass max_norm= to the optimizer, which clips their norm"
        )

    clip_grad_value_ = clip_grad_norm_
