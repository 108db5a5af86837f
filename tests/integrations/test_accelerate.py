"""A loop with Accelerate equals a plain loop with the library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader

import sampa
from sampa.integrations.accelerate import SharpnessAwareAccelerator
from tests.integrations.digits import images, small_net


def loop(folder: Path | None, kind: type[Any], resume: bool = False, **keywords: Any) -> Any:
    """Two epochs; the state is saved after the first, or loaded in its place."""
    accelerator = kind(cpu=True, **keywords)
    model: Any = small_net()
    base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    executor = sampa.distribute(model)
    optimizer: Any = sampa.SAMPa(base, rho=0.1, seed=7, max_norm=0.3, executor=executor)
    scheduler: Any = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    loader: Any = DataLoader(images(), batch_size=8)
    if kind is SharpnessAwareAccelerator:
        prepared = accelerator.prepare(model, optimizer, loader, scheduler)
        model, optimizer, loader, scheduler = prepared
    if resume:
        accelerator.load_state(str(folder))

    def loss_fn(batch: Any) -> Tensor:
        return F.cross_entropy(model(batch[0]), batch[1])

    for epoch in range(resume, 2):
        for batch in loader:
            optimizer.step(loss_fn, batch)
            if optimizer.last.updated:
                scheduler.step()
        if folder is not None and epoch == 0:
            accelerator.save_state(str(folder))
    return model.state_dict()


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def test_a_prepared_loop_equals_a_plain_one_and_resumes_bit_for_bit(tmp_path: Path) -> None:
    plain = loop(None, Accelerator)
    assert same(loop(tmp_path, SharpnessAwareAccelerator), plain)
    assert same(loop(tmp_path, SharpnessAwareAccelerator, resume=True), plain)


def test_what_does_not_fit_is_refused_with_what_to_write() -> None:
    with pytest.raises(ValueError, match="pass accumulate=2 to the optimizer"):
        loop(None, SharpnessAwareAccelerator, gradient_accumulation_steps=2)
    accelerator = SharpnessAwareAccelerator(cpu=True)
    with pytest.raises(RuntimeError, match=r"pass max_norm=1\.0 to the optimizer"):
        accelerator.clip_grad_norm_([], 1.0)
    with pytest.raises(RuntimeError, match="pass max_norm= to the optimizer"):
        accelerator.clip_grad_value_([], 1.0)
