"""Frameworks in half precision: fp16 with their scaler on an accelerator, bf16 on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.state import AcceleratorState
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader

import sampa
from sampa.integrations.accelerate import SharpnessAwareAccelerator
from tests.integrations import test_lightning, test_transformers
from tests.integrations.digits import images, small_net

DEVICES = [
    pytest.param("cpu", marks=pytest.mark.slow),
    pytest.param("cuda", marks=pytest.mark.gpu),
]
pytestmark = [pytest.mark.filterwarnings(f"ignore:{text}") for text in test_lightning.ITS_WARNINGS]
_alone = test_lightning._alone  # a fixture: Lightning joins a process group of one


def assert_trained(optimizer: Any, model: torch.nn.Module, device: str) -> None:
    """All updates but the scaler's first tries were made, with finite weights."""
    assert isinstance(optimizer, sampa.SharpnessAware)
    assert (optimizer.options.scaler is not None) == (device == "cuda")
    assert {p.device.type for p in model.parameters()} == {device}
    assert all(p.isfinite().all() for p in model.parameters())
    assert optimizer.last is not None
    assert optimizer.last.step > 0


@pytest.mark.parametrize("device", DEVICES)
def test_accelerate_trains_in_half_precision(device: str) -> None:
    AcceleratorState._reset_state(True)
    half = "fp16" if device == "cuda" else "bf16"
    accelerator: Any = SharpnessAwareAccelerator(cpu=device == "cpu", mixed_precision=half)
    model: Any = small_net().to(accelerator.device)
    base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    ours = sampa.SAMPa(base, scaler=accelerator.scaler, executor=sampa.distribute(model))
    loader = DataLoader(images(), batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, ours, loader)

    def loss_fn(batch: Any) -> Tensor:
        return F.cross_entropy(model(batch[0]), batch[1])

    for batch in loader:
        optimizer.step(loss_fn, batch)
    assert_trained(ours, model, device)
    AcceleratorState._reset_state(True)


@pytest.mark.parametrize("device", DEVICES)
def test_lightning_trains_in_half_precision(device: str, tmp_path: Path) -> None:
    from tests.integrations.modules import Classifier, fit

    half = "16-mixed" if device == "cuda" else "bf16-mixed"
    module = Classifier(rho=0.1)
    trainer = fit(module, tmp_path, batch=4, accelerator=device, precision=half)
    (optimizer,) = trainer.optimizers
    module.to(device)  # Lightning takes it back to the CPU
    assert_trained(optimizer, module, device)


@pytest.mark.filterwarnings("ignore:.*pin_memory.*:UserWarning")
@pytest.mark.parametrize("device", DEVICES)
def test_the_trainer_trains_in_half_precision(device: str, tmp_path: Path) -> None:
    AcceleratorState._reset_state(True)
    changes = {"use_cpu": device == "cpu", ("fp16" if device == "cuda" else "bf16"): True}
    trainer = test_transformers.make(tmp_path, changes)
    trainer.train()
    assert_trained(trainer.sharpness_aware, trainer.model, device)
    AcceleratorState._reset_state(True)
