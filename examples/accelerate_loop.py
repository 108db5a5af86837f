"""A loop with Accelerate and SAMPa.

python examples/accelerate_loop.py
torchrun --nproc-per-node 2 examples/accelerate_loop.py      # the two gradients of a step at once
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import sampa
from sampa.integrations.accelerate import SharpnessAwareAccelerator


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    epochs = parser.parse_args().epochs

    accelerator = SharpnessAwareAccelerator(cpu=True)
    torch.manual_seed(0)
    pixels, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(labels)
    order = torch.randperm(len(x))
    train, test = order[:1437], order[1437:]
    loader = DataLoader(TensorDataset(x[train], y[train]), batch_size=64)

    model: nn.Module = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    optimizer = sampa.SAMPa(base, rho=0.1, lam=0.2, executor=sampa.distribute(model))
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    def loss_fn(batch: tuple[Tensor, Tensor]) -> Tensor:
        images, targets = batch
        return F.cross_entropy(model(images), targets)

    for _ in range(epochs):
        for batch in loader:
            optimizer.step(loss_fn, batch)

    with torch.no_grad():
        accuracy = (model(x[test]).argmax(1) == y[test]).double().mean().item()
    accelerator.print(f"test accuracy {100 * accuracy:.1f} %")
    accelerator.end_training()


if __name__ == "__main__":
    main()
