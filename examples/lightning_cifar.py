"""Train a small convolutional network on images with Lightning and SAMPa, as for CIFAR.

python examples/lightning_cifar.py
torchrun --nproc-per-node 2 examples/lightning_cifar.py      # the two gradients of a step at once

The images are scikit-learn's digits, which come with the package."""

from __future__ import annotations

import argparse
import os

import lightning.pytorch as pl
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import sampa
from sampa.integrations.lightning import SharpnessAwareStrategy


class Classifier(pl.LightningModule):
    """Nothing in it is about sampa but `configure_optimizers`."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(256, 10)),
        )

    def training_step(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        x, y = batch
        return F.cross_entropy(self.net(x), y)

    def validation_step(self, batch: tuple[Tensor, Tensor]) -> None:
        x, y = batch
        accuracy = (self.net(x).argmax(1) == y).double().mean()
        self.log("accuracy", accuracy, batch_size=len(y), sync_dist=True)

    def configure_optimizers(self) -> sampa.SharpnessAware:
        base = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
        return sampa.SAMPa(base, rho=0.1, lam=0.2)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    pl.seed_everything(0)
    pixels, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(pixels / 16, dtype=torch.float32).view(-1, 1, 8, 8), torch.tensor(labels)
    order = torch.randperm(len(x))
    train, test = (TensorDataset(x[part], y[part]) for part in (order[:1437], order[1437:1797]))
    model = Classifier()
    trainer = pl.Trainer(
        strategy=SharpnessAwareStrategy(),
        devices=int(os.environ.get("WORLD_SIZE", "1")),
        max_epochs=parser.parse_args().epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(model, DataLoader(train, batch_size=64), DataLoader(test, batch_size=180))
    print(f"test accuracy {100 * float(trainer.callback_metrics['accuracy']):.1f} %")


if __name__ == "__main__":
    main()
