"""Flatness while a run trains: at x_t, on the same samples and with one ρ for all methods."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from sampa import flatness
from sampa.lab.data.batches import ImageBatches
from sampa.lab.data.plans import Shuffled
from sampa.lab.training.ranks import is_first
from sampa.lab.training.session import FLATNESS_RHO, Settings
from sampa.samples import map_tensors

BATCHES, SAMPLES = 2, 128
STEPS, PRODUCTS = 3, 10


def plain_batches(task: Any, batch_size: int, count: int) -> list[Any]:
    """The first batches of training, images as they are; fewer if there are not as many."""
    batches = task.batches
    if isinstance(batches, ImageBatches) and isinstance(batches.plan, Shuffled):
        size = min(batch_size, len(batches.plan.indices))
        size -= size % batches.plan.shards
        plan = replace(batches.plan, batch_size=size)
        batches = replace(batches, plan=plan, augment_seed=None)
    return [batches.batch(0, number) for number in range(min(count, len(batches)))]


def on_device(batch: Any, device: torch.device) -> Any:
    """The batch with its tensors on a device."""
    return map_tensors(lambda t: t.to(device), batch)


def flatness_after(
    epoch: int, settings: Settings, task: Any, model: nn.Module, device: torch.device
) -> dict[str, float]:
    """Sharpness and the top eigenvalue at the weights, if this epoch is one to measure after.

    On the first rank alone, whatever points the method evaluates.
    """
    every = settings.flatness_every
    if not every or (epoch + 1) % every or not is_first():
        return {}
    batches = [on_device(b, device) for b in plain_batches(task, SAMPLES, BATCHES)]

    def loss_fn(batch: Any) -> Any:
        return task.loss(model, batch)

    sharp = flatness.sharpness(model, loss_fn, batches, rho=FLATNESS_RHO, steps=STEPS, m="batch")
    top = flatness.hessian_eigenvalues(
        model, loss_fn, batches, tolerance=0.05, max_products=PRODUCTS
    )
    return {"flatness_sharpness": sharp.value, "flatness_eigenvalue": top.values[0]}
