"""Hugging Face's Trainer: `training_step` makes the whole step of a sampa optimizer.

The Trainer's loop then finds nothing left to do for its optimizer, and keeps what it is good at:
batches, schedules, logs, evaluation, checkpoints.
"""

from __future__ import annotations

import copy
import inspect
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import Trainer, TrainingArguments

import sampa
from sampa.cost import probes_per_round
from sampa.execution.distribute import distribute
from sampa.execution.executor import Executor, launched_world_size
from sampa.integrations.prepared import PreparedOptimizer, divide_by_data_rank
from sampa.integrations.ranks import Layout, layout_of, whole_state
from sampa.integrations.replaced import nothing, replaced
from sampa.messages import unknown
from sampa.optimizer import SharpnessAware
from sampa.options import default_options


class _DoneOptimizer(PreparedOptimizer):
    """The optimizer that the Trainer's loop sees: `training_step` has made its step already."""

    def step(self, *_: Any, **__: Any) -> None:
        pass


class SharpnessAwareMixin(Trainer):
    """Makes a Trainer sharpness-aware: put it before `Seq2SeqTrainer`, or one of your own.

    Args:
        method: A name in `sampa.METHODS`.
        branches: How many gradients of a step are computed at once, on as many processes; as many
            as the method allows if not given. The other processes divide the batches.
        **keywords: Those of the Trainer, of the method (`rho`, `lam`), and of `sampa.Options`.
    """

    def __init__(
        self,
        model: Any = None,
        args: TrainingArguments | None = None,
        *positional: Any,
        method: str = "sampa",
        branches: int | None = None,
        **keywords: Any,
    ) -> None:
        if method not in sampa.METHODS:
            raise ValueError(unknown("method", method, sampa.METHODS))
        theirs = {*inspect.signature(Trainer.__init__).parameters}
        theirs |= {*inspect.signature(super().__init__).parameters}
        ours = {k: v for k, v in keywords.items() if k not in theirs}
        args = args or TrainingArguments("tmp_trainer")
        self.averages_items = args.average_tokens_across_devices
        self.factory = partial(sampa.METHODS[method], **ours)
        self.branches = branches
        self._executor: Executor | None = None
        keywords = {k: v for k, v in keywords.items() if k in theirs}
        super().__init__(model, _undivided(args), *positional, **keywords)

    @property
    def executor(self) -> Executor:
        """What computes the gradients; all processes ask for it first at the same time."""
        bare = partial(self.accelerator.unwrap_model, keep_torch_compile=False)
        if self._executor is None or bare(self._executor.module) is not self.model:
            branches = self.branches or min(probes_per_round(self.factory), launched_world_size())
            model: Any = self.model
            if self.args.world_size > 1:  # casts and compiles, and does not wrap
                model = self.accelerator.prepare_model(model, evaluation_mode=True)
            # Accelerate finds a model inside of DistributedDataParallel, which the exchange over a
            # network is, and inside of nothing else.
            unused = self.args.ddp_find_unused_parameters or False
            self._executor = distribute(
                model, branches, find_unused_parameters=unused, shared_memory=False
            )
        return self._executor

    @property
    def layout(self) -> Layout:
        return layout_of(self.executor)

    @property
    def sharpness_aware(self) -> SharpnessAware:
        """The sampa optimizer, when training has begun."""
        assert isinstance(self.optimizer, PreparedOptimizer)
        return self.optimizer.optimizer

    # ---- the step ----------------------------------------------------------------------------

    def create_optimizer(self, model: nn.Module | None = None) -> Any:
        if isinstance(self.optimizer, _DoneOptimizer):
            return self.optimizer
        base = super().create_optimizer(model)
        clip, scaler = self.args.max_grad_norm or None, self.accelerator.scaler
        with default_options(executor=self.executor, max_norm=clip, scaler=scaler):
            self.optimizer = _DoneOptimizer(self.factory(base), self.args.device)
        return self.optimizer

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None
    ) -> Tensor:
        """Keep the batch, and make the step with the last one of an update."""
        model.train()
        inputs, items = {**self._prepare_inputs(inputs)}, num_items_in_batch
        weight = 1 / self.current_gradient_accumulation_steps
        if items is not None:
            if self.averages_items:  # over data ranks; branches have the same
                everywhere: Any = self.accelerator.gather(items)
                items = everywhere.float().mean()
            weight = self._items_in(inputs) / items
        assert isinstance(self.optimizer, _DoneOptimizer)
        # What belongs to a batch travels with it: SAMPa evaluates it again in the next step.
        window = self.optimizer.collected({"inputs": inputs, "weight": weight})
        if window is None:
            return torch.zeros((), device=self.args.device)
        return self.sharpness_aware.step(self._loss_of, window, in_parts=True).detach()

    def _loss_of(self, part: dict[str, Any]) -> Tensor:
        """The mean over the items (tokens, samples) of a batch, with its weight in the update."""
        inputs, model = {**part["inputs"]}, self.model_wrapped
        items = self._items_in(inputs)
        assert model is not None
        with self.compute_loss_context_manager():
            # It takes the labels out of the inputs.
            loss = self.compute_loss(model, inputs, num_items_in_batch=items)
        assert isinstance(loss, Tensor)
        return loss * part["weight"]

    def _items_in(self, inputs: dict[str, Any]) -> Any:
        items: Any = self._get_num_items_in_batch([inputs], self.args.device)
        return items if items is None else items.clamp(min=1)

    # ---- what the loop asks for --------------------------------------------------------------

    def get_train_dataloader(self) -> DataLoader[Any]:
        loader = super().get_train_dataloader()
        if self.args.world_size > 1:
            divide_by_data_rank(loader, self.layout)
        return loader

    def get_total_train_batch_size(self, args: TrainingArguments) -> int:
        return self._train_batch_size * args.gradient_accumulation_steps * self.layout.data_ranks

    def _wrap_model(self, model: Any, training: bool = True, dataloader: Any = None) -> Any:
        if not training:
            self._sync_buffers()
        return self.executor.model if training and self.args.world_size > 1 else model

    _clip_grad_norm = nothing  # which the step has done

    def _get_grad_norm(self, model: nn.Module, grad_norm: float | None = None) -> float | None:
        """Of the step's last gradient, before it was clipped."""
        last = self.sharpness_aware.last
        return last.norms[-1] if last is not None else None

    def _track_num_input_tokens(self, inputs: Any) -> None:
        before = self.state.num_input_tokens_seen
        super()._track_num_input_tokens(inputs)
        new = self.state.num_input_tokens_seen - before  # of all processes
        self.state.num_input_tokens_seen = before + new // self.layout.branches

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        last = self.sharpness_aware.last if "loss" in logs else None
        super().log(logs if last is None else {**logs, **last.numbers()}, start_time)

    # ---- checkpoints -------------------------------------------------------------------------

    def save_model(self, *args: Any, **kwargs: Any) -> None:
        self._sync_buffers()
        super().save_model(*args, **kwargs)

    def _sync_buffers(self) -> None:
        if self._executor is not None:
            self._executor.sync_buffers()

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        state = whole_state(self.sharpness_aware)  # from all ranks, of which the first asks for it
        with replaced(self.optimizer, state_dict=lambda: state):
            super()._save_optimizer_and_scheduler(output_dir)


class SharpnessAwareTrainer(SharpnessAwareMixin):
    """A `transformers.Trainer` that trains with a sharpness-aware method.

    `gradient_accumulation_steps` batches make a step, `max_grad_norm` clips the gradient that the
    method hands on, and `global_step` counts steps: SAMPa's first makes no update.
    """


def _undivided(args: TrainingArguments) -> TrainingArguments:
    """The arguments without what would divide gradients, or weigh losses by processes.

    Raises:
        ValueError: If something else is to divide the model or its gradients.
    """
    for name in ("fsdp", "deepspeed"):
        if getattr(args, name, None):
            raise ValueError(
                f"{name} must not be set, got {getattr(args, name)!r}: sampa divides the work of a "
                "step itself; start one process per device with torchrun, without it"
            )
    if args.world_size != launched_world_size():
        raise ValueError(
            f"{launched_world_size()} processes were started, but TrainingArguments knows of "
            f"{args.world_size}; without GPUs set use_cpu=True"
        )
    args = copy.copy(args)
    # It scales losses by the number of processes, also those of models that do not divide by it.
    args.average_tokens_across_devices = False
    args._n_gpu = min(args.n_gpu, 1)  # no DataParallel in one process
    return args
