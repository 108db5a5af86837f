"""A compiled model inside of `loss_fn`: compiled as often as for plain SGD.

python examples/compiled.py                       # torch.compile's default backend
python examples/compiled.py --backend eager       # traced only, the same bits as uncompiled
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
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--backend", default="inductor")
    arguments = parser.parse_args()

    torch.manual_seed(0)
    pixels, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(labels)
    order = torch.randperm(len(x))
    train, test = order[:1437], order[1437:]
    # Batches of one size: a shorter last one would be compiled for itself.
    data = TensorDataset(x[train], y[train])
    loader = DataLoader(data, batch_size=64, shuffle=True, drop_last=True)

    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    network = torch.compile(model, backend=arguments.backend)
    base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    # The executor knows the model, so that nothing has to be looked for in the first pass.
    optimizer = sampa.SAMPa(base, rho=0.1, lam=0.2, executor=sampa.Serial(model))

    def loss_fn(batch: tuple[Tensor, Tensor]) -> Tensor:
        images, targets = batch
        return F.cross_entropy(network(images), targets)

    for _ in range(arguments.epochs):
        for batch in loader:
            optimizer.step(loss_fn, batch)

    with torch.no_grad():
        accuracy = (model(x[test]).argmax(1) == y[test]).double().mean().item()
    print(f"test accuracy {100 * accuracy:.1f} %")


if __name__ == "__main__":
    main()
