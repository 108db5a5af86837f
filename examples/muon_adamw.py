"""Muon for the matrices and AdamW for the rest, as one base optimizer of SAMPa.

python examples/muon_adamw.py
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
    parser.add_argument("--epochs", type=int, default=5)
    epochs = parser.parse_args().epochs

    torch.manual_seed(0)
    pixels, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(labels)
    order = torch.randperm(len(x))
    train, test = order[:1437], order[1437:]
    loader = DataLoader(TensorDataset(x[train], y[train]), batch_size=64, shuffle=True)

    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    matrices = [p for p in model.parameters() if p.ndim == 2]
    others = [p for p in model.parameters() if p.ndim != 2]
    muon = torch.optim.Muon(matrices, lr=0.02, weight_decay=0.01)
    adamw = torch.optim.AdamW(others, lr=2e-3)
    # One norm and one lookahead over all weights; each base has a schedule of its own.
    optimizer = sampa.SAMPa([muon, adamw], rho=0.1, lam=0.2)
    schedulers = [
        torch.optim.lr_scheduler.CosineAnnealingLR(base, T_max=epochs) for base in (muon, adamw)
    ]

    def loss_fn(batch: tuple[Tensor, Tensor]) -> Tensor:
        images, targets = batch
        return F.cross_entropy(model(images), targets)

    for _ in range(epochs):
        for batch in loader:
            optimizer.step(loss_fn, batch)
        for scheduler in schedulers:
            scheduler.step()

    with torch.no_grad():
        accuracy = (model(x[test]).argmax(1) == y[test]).double().mean().item()
    print(f"test accuracy {100 * accuracy:.1f} %")


if __name__ == "__main__":
    main()
