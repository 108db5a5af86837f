"""A small network with BatchNorm and dropout as a LightningModule, and images of digits."""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import sampa


def images(count: int = 28) -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    return TensorDataset(
        torch.randn(count, 8, generator=generator),
        torch.randint(0, 3, (count,), generator=generator),
    )


def small_net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3)
    )


class Classifier(LightningModule):
    """As a user writes it; the optimizer comes from `configure_optimizers`."""

    def __init__(self, method: str = "sampa", interval: str = "epoch", **options: Any) -> None:
        super().__init__()
        self.net = small_net()
        self.method, self.interval, self.options = method, interval, options
        self.passes = 0

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        self.passes += 1
        self.log("train_loss", loss, on_step=True, on_epoch=False)
        return loss

    def validation_step(self, batch: Any) -> None:
        x, y = batch
        self.log("val_loss", F.cross_entropy(self(x), y), sync_dist=True)
        self.log("seen", float(len(y)), reduce_fx="sum", sync_dist=True)

    def configure_optimizers(self) -> Any:
        base = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        optimizer = sampa.METHODS[self.method](base, seed=7, **self.options)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        return [optimizer], [{"scheduler": scheduler, "interval": self.interval}]
