"""SAMPa on two processes, and in one: the same script, the same weights, bit for bit.

Digits with 40 % wrong training labels. On two processes, one computes the gradient at the
perturbed weights while the other computes the gradient at the lookahead. This script stays on the
CPU so that it runs anywhere; docs/how-to/devices.md shows the lines for GPUs.

    python examples/two_devices.py
    torchrun --nproc-per-node 2 examples/two_devices.py

The last line is a hash of the weights: both commands print the same one, on every rank.
"""

from __future__ import annotations

import argparse
import hashlib
import os

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import sampa

RANK = int(os.environ.get("RANK", "0"))  # set by torchrun


def digits(noise: float) -> tuple[TensorDataset, Tensor, Tensor]:
    """Training digits of which a share has another label, and clean test images and labels."""
    generator = torch.Generator().manual_seed(0)
    pixels, labels = load_digits(return_X_y=True)  # 1,797 images of 8x8
    x, y = torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(labels)
    train, test = torch.randperm(len(x), generator=generator).split([1437, 360])
    is_wrong = torch.rand(len(train), generator=generator) < noise
    shift = torch.randint(1, 10, (len(train),), generator=generator)
    noisy = torch.where(is_wrong, (y[train] + shift) % 10, y[train])
    return TensorDataset(x[train], noisy), x[test], y[test]


def network() -> nn.Module:
    """With BatchNorm and dropout: they too must agree between one process and two."""
    torch.manual_seed(0)
    hidden = [nn.Linear(64, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Dropout(0.2)]
    return nn.Sequential(*hidden, nn.Linear(256, 10))


def weight_hash(model: nn.Module) -> str:
    """A short hash of every parameter and buffer."""
    digest = hashlib.sha256()
    for tensor in model.state_dict().values():
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()[:16]


def say(line: str) -> None:
    if RANK == 0:
        print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    epochs = parser.parse_args().epochs
    # The number of threads changes the order of sums, and so their last bits. torchrun sets one.
    torch.set_num_threads(1)

    train, test_images, test_labels = digits(noise=0.4)
    model = network()
    executor = sampa.distribute(model)
    base = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    optimizer = sampa.SAMPa(base, rho=0.2, lam=0.2, executor=executor)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs)
    sampler = executor.sampler(train, shuffle=True, seed=0)  # both branches see the same batches
    loader = DataLoader(train, batch_size=128, sampler=sampler)

    def loss_fn(batch: tuple[Tensor, Tensor]) -> Tensor:
        images, labels = batch
        return F.cross_entropy(executor.model(images), labels)

    say(f"SAMPa-0.2 {'in one process' if executor.mesh is None else f'on {executor.mesh}'}")
    say("epoch   loss   sharpness gap   test accuracy")
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        losses: list[float] = []
        gaps: list[float] = []
        for batch in loader:
            losses.append(optimizer.step(loss_fn, batch).item())
            if optimizer.last is not None and optimizer.last.sharpness is not None:
                gaps.append(optimizer.last.sharpness)
        scheduler.step()

        executor.model.eval()  # on every rank: it brings the BatchNorm statistics together
        with torch.no_grad():
            hits = (executor.model(test_images).argmax(1) == test_labels).double().mean().item()
        executor.model.train()
        loss, gap = sum(losses) / len(losses), sum(gaps) / len(gaps)
        say(f"{epoch + 1:5d} {loss:6.3f} {gap:15.4f} {100 * hits:13.1f} %")

    if isinstance(executor, sampa.Parallel):
        sent = executor.traffic.gradient_bytes + executor.traffic.header_bytes
        say(f"bytes sent by this rank: {sent:,}")
    print(f"rank {RANK}: weights {weight_hash(model)}", flush=True)


if __name__ == "__main__":
    main()
