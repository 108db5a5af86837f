"""Hugging Face's Trainer: `training_step` makes the whole step of a sampa optimizer.

The Trainer's loop then finds nothing left to do for its optimizer, and keeps what it is good at:
batches, schedules, logs, evaluation, checkpoints.
"""

from __future__ import annotations

import copy
import inspect
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import Trainer, TrainingArguments

import sampa
from sampa.cost import probes_per_round
from sampa.execution.distribute import distribute
from sampa.execution.executor import Executor, launched_world_size
from sampa.integrations.accelerate import PreparedOptimizer, divide_by_data_rank
from sampa.integrations.ranks import Layout, layout_of, whole_state
from sampa.messages import unknown
from sampa.optimizer import SharpnessAware
from sampa.samples import batch_size


class _DoneOptimizer(PreparedOptimizer):
    """The optimizer that the Trainer's loop sees: `training_step` has made its step already."""

    saved: dict[str, Any] | None = None  # the state that all ranks put together

    def step(self, *_: Any, **__: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        pass

    def state_dict(self) -> dict[str, Any]:
        return self.optimizer.state_dict() if self.saved is None else self.saved


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
        if "accumulate" in ours:
            raise TypeError("accumulate is gradient_accumulation_steps in TrainingArguments")
        args = args or TrainingArguments("tmp_trainer")
        self.accumulate = args.gradient_accumulation_steps
        self.averages_items = args.average_tokens_across_devices
        self.factory = partial(sampa.METHODS[method], accumulate=self.accumulate, **ours)
        self.branches = branches
        self._executor: Executor | None = None
        keywords = {k: v for k, v in keywords.items() if k in theirs}
        super().__init__(model, _with_whole_batches(args), *positional, **keywords)

    @property
    def executor(self) -> Executor:
        """What computes the gradients; all processes ask for it first at the same time."""
        if self._executor is None or self._bare(self._executor.module) is not self.model:
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
        if isinstance(base, SharpnessAware):
            raise TypeError(
                "optimizers must hold a plain torch optimizer, got one of sampa; pass its base, "
                'and the method to the trainer: method="sampa", rho=0.1'
            )
        clip = self.args.max_grad_norm or None
        options: dict[str, Any] = {"executor": self.executor, "scaler": self.accelerator.scaler}
        optimizer = self.factory(base, **{"max_norm": clip, **options, **self.factory.keywords})
        self.optimizer = _DoneOptimizer(optimizer, self.args.device)
        return self.optimizer

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None
    ) -> Tensor:
        model.train()
        inputs, items = {**self._prepare_inputs(inputs)}, num_items_in_batch
        if items is not None and self._counts_all_items:
            all_items: Any = self.accelerator.gather(items)
            items = all_items.sum() // self.layout.branches
        samples = batch_size(inputs) if items is not None and self._weighs_parts else None
        # What belongs to a batch travels with it: SAMPa evaluates it again in the next step.
        batch = {"inputs": inputs, "items": items, "samples": samples}
        return self.sharpness_aware.step(self._loss_of, batch).detach()

    @property
    def _weighs_parts(self) -> bool:
        return self.accumulate > 1 or self._counts_all_items

    @property
    def _counts_all_items(self) -> bool:
        return self.averages_items and self.layout.data_ranks > 1

    def _loss_of(self, batch: dict[str, Any]) -> Tensor:
        """The mean over the items (tokens, samples) of a micro-batch.

        The step weighs it by samples. Of texts of different lengths some have more items.
        """
        inputs, items, samples = {**batch["inputs"]}, batch["items"], batch["samples"]
        own: Any = None
        if items is not None:
            own = self._get_num_items_in_batch([inputs], self.args.device)
        size, model = samples and batch_size(inputs), self.model_wrapped
        assert model is not None
        with self.compute_loss_context_manager():
            # It takes the labels out of the inputs.
            loss = self.compute_loss(model, inputs, num_items_in_batch=own)
        assert isinstance(loss, Tensor)
        if items is None or not size:
            return loss
        ranks = self.layout.data_ranks if self._counts_all_items else 1
        return loss * ((own * samples * ranks) / (items * size))

    # ---- what the loop asks for --------------------------------------------------------------

    def get_train_dataloader(self) -> DataLoader[Any]:
        loader = super().get_train_dataloader()
        if self.args.world_size > 1:
            divide_by_data_rank(loader, self.layout)
        return loader

    def get_total_train_batch_size(self, args: TrainingArguments) -> int:
        return self._train_batch_size * args.gradient_accumulation_steps * self.layout.data_ranks

    def _wrap_model(self, model: Any, training: bool = True, dataloader: Any = None) -> Any:
        distributes = training and self.args.world_size > 1
        return self.executor.model if distributes else model

    def _clip_grad_norm(self, model: nn.Module) -> float | None:
        return self._get_grad_norm(model)

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
        if last is not None:
            told = {"sharpness": last.sharpness, "cosine": last.cosine}
            logs.update({k: v for k, v in told.items() if v is not None})
            logs.update(updates=last.step, skips=last.skips)
        super().log(logs, start_time)

    # ---- evaluation and checkpoints ----------------------------------------------------------

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        self._sync_buffers()
        return super().evaluation_loop(*args, **kwargs)

    def save_model(self, *args: Any, **kwargs: Any) -> None:
        self._sync_buffers()
        super().save_model(*args, **kwargs)

    def _sync_buffers(self) -> None:
        if self._executor is not None:
            self._executor.sync_buffers()

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        assert isinstance(self.optimizer, _DoneOptimizer)
        self.optimizer.saved = whole_state(self.sharpness_aware)  # only the first rank writes
        super()._save_optimizer_and_scheduler(output_dir)
        self.optimizer.saved = None

    def _bare(self, model: Any) -> Any:
        return self.accelerator.unwrap_model(model, keep_torch_compile=False)


class SharpnessAwareTrainer(SharpnessAwareMixin):
    """A `transformers.Trainer` that trains with a sharpness-aware method.

    `gradient_accumulation_steps` cuts each batch into as many parts, `max_grad_norm` clips the
    gradient that the method hands on, and `global_step` counts batches: SAMPa's first makes no
    update.
    """


def _with_whole_batches(args: TrainingArguments) -> TrainingArguments:
    """The arguments with all of an update's samples in one batch, whose loss is left alone.

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
    args.per_device_train_batch_size *= args.gradient_accumulation_steps
    args.gradient_accumulation_steps = 1
    # It scales losses by the number of processes, also those of models that do not divide by it.
    args.average_tokens_across_devices = False
    if args.n_gpu > 1:
        args._n_gpu = 1  # no DataParallel in one process
    return args
