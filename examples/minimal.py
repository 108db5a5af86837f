"""Train a small network on scikit-learn's digits with SAMPa, in one process.

python examples/minimal.py
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import sampa


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    epochs = parser.parse_args().epochs

    torch.manual_seed(0)
    pixels, labels = load_digits(return_X_y=True)  # 1,797 images of 8x8, shipped with scikit-learn
    x, y = torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(labels)
    order = torch.randperm(len(x))
    train, test = order[:1437], order[1437:]
    loader = DataLoader(TensorDataset(x[train], y[train]), batch_size=64, shuffle=True)

    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    optimizer = sampa.SAMPa(base, rho=0.1, lam=0.2)

    def loss_fn(batch: tuple[Tensor, Tensor]) -> Tensor:
        images, targets = batch
        return F.cross_entropy(model(images), targets)

    loss = torch.tensor(torch.nan)
    for epoch in range(epochs):
        for batch in loader:
            loss = optimizer.step(loss_fn, batch)
        print(f"epoch {epoch + 1:2d}   loss of the last batch {loss.item():.4f}")

    with torch.no_grad():
        accuracy = (model(x[test]).argmax(1) == y[test]).double().mean().item()
    print(f"test accuracy {100 * accuracy:.1f} %")


if __name__ == "__main__":
    main()
