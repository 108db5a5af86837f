"""The digits' network as LightningModules, and a trainer with our strategy.

Lightning takes as long to import as all else together: tests import this where they use it, so
that processes that run others do not wait for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader

import sampa
from sampa.integrations.lightning import SharpnessAwareStrategy, StepMonitor
from tests.integrations.digits import CLIP, images, small_net


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


class Manual(Classifier):
    """With manual optimization."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        def loss_fn(batch: Any) -> Tensor:
            return F.cross_entropy(self(batch[0]), batch[1])

        optimizer: Any = self.optimizers()
        optimizer.step(loss_fn, batch=batch)

    def on_train_epoch_end(self) -> None:
        scheduler: Any = self.lr_schedulers()
        scheduler.step()


class Keep(StepMonitor):
    """Also keeps the losses that `training_step` logged."""

    def __init__(self) -> None:
        super().__init__()
        self.losses: list[float] = []

    def on_train_batch_end(self, trainer: Trainer, *args: Any, **kwargs: Any) -> None:
        super().on_train_batch_end(trainer, *args, **kwargs)
        self.losses += [float(v) for k, v in trainer.callback_metrics.items() if k == "train_loss"]


def fit(
    module: Classifier, folder: Path | str, ckpt: str | None = None, batch: int = 8, **keywords: Any
) -> Trainer:
    keywords = {"devices": 1, "gradient_clip_val": CLIP, "max_epochs": 2, **keywords}
    keywords.setdefault("accelerator", "cpu")
    if not module.automatic_optimization:
        module.options["max_norm"] = keywords.pop("gradient_clip_val")
    trainer = Trainer(
        default_root_dir=folder,
        strategy=SharpnessAwareStrategy(),
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[ModelCheckpoint(dirpath=folder, save_top_k=-1), Keep()],
        **keywords,
    )
    train, val = (DataLoader(images(n), batch_size=batch) for n in (28, 11))
    trainer.fit(module, train, val, ckpt_path=ckpt, weights_only=True)
    return trainer
