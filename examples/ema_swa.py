"""An exponential average of the weights beside SAMPa, with BatchNorm's statistics made for it.

python examples/ema_swa.py

Outside of `step` the weights are always x_t, so that torch's own averaging needs nothing special.
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn
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

    model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10))
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.95))
    base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    optimizer = sampa.SAMPa(base, rho=0.1, lam=0.2, executor=sampa.Serial(model))

    def loss_fn(batch: tuple[Tensor, Tensor]) -> Tensor:
        images, targets = batch
        return F.cross_entropy(model(images), targets)

    for _ in range(epochs):
        for batch in loader:
            optimizer.step(loss_fn, batch)
            average.update_parameters(model)
    update_bn(loader, average)  # statistics at the averaged weights

    for name, network in (("last weights", model), ("averaged weights", average)):
        network.eval()
        with torch.no_grad():
            accuracy = (network(x[test]).argmax(1) == y[test]).double().mean().item()
        print(f"test accuracy of the {name} {100 * accuracy:.1f} %")


if __name__ == "__main__":
    main()
