"""The optimizer of a run: its base, its method, and the hyper-parameters that both are given."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn

import sampa
from sampa.catalog import Factory, find_method
from sampa.execution.executor import Executor
from sampa.execution.randomness import derive_seed
from sampa.lab.training.hyperparameters import given_options
from sampa.lab.training.run import BaseSpec, Run
from sampa.messages import WrongUsage
from sampa.method import Method
from sampa.optimizer import SharpnessAware


def base_optimizer(spec: BaseSpec, model: nn.Module) -> torch.optim.Optimizer:
    """Torch's own optimizer, which makes the step from the gradient that the method returns."""
    parameters = model.parameters()
    if spec.kind == "adamw":
        return torch.optim.AdamW(parameters, lr=spec.lr, weight_decay=spec.weight_decay)
    return torch.optim.SGD(
        parameters, lr=spec.lr, momentum=spec.momentum, weight_decay=spec.weight_decay
    )


def optimizer_of(
    run: Run, model: nn.Module, executor: Executor, total_steps: int, device: torch.device
) -> SharpnessAware:
    """What trains a model: the run's method around its base optimizer."""
    factory = find_method(run.method)
    return factory(
        base_optimizer(run.base, model),
        **method_options(run, factory, total_steps),
        executor=executor,
        max_norm=run.max_norm,
        scaler=torch.amp.GradScaler(device.type) if run.amp == "fp16" else None,
        seed=derive_seed(run.seed, "noise in the model"),
        save_batch=False,  # batches are a pure function of their number
    )


def checked_method(run: Run) -> Method:
    """The method of a run with its hyper-parameters, tried before anything is begun.

    Raises:
        ValueError: If the method is not known or does not take them.
    """
    factory = find_method(run.method)
    base = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=run.base.lr)
    # Serial, because this check also runs on each of several ranks.
    options = method_options(run, factory, total_steps=1)
    return factory(base, **options, executor=sampa.Serial()).method


def branches_of(run: Run, method: Method, processes: int) -> int:
    """How many gradients of a step are computed at once; further processes share the batches.

    Raises:
        WrongUsage: If the processes cannot be shared evenly.
    """
    branches = min(method.probes_per_round, processes)
    if processes % branches:
        raise WrongUsage(
            f"{run.method} needs a multiple of {branches} processes to compute {branches} "
            f"gradients at once, got {processes}; choose --devices 1, {branches} or a multiple"
        )
    return branches


def method_options(run: Run, factory: Factory, total_steps: int) -> dict[str, Any]:
    """The method's hyper-parameters: its defaults, the recipe's, and the command line's."""
    return given_options(run, inspect.signature(factory).parameters, total_steps)
