"""A recipe, data and a network as a user might have them; copied to where a test needs them."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from sampa.lab.training.run import BaseSpec, DataSpec, ModelSpec, Run


class Points(Dataset[tuple[Tensor, int]]):
    """Two clouds of points, moved at random whenever one is looked at."""

    def __init__(self, n: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.y = [i % 2 for i in range(n)]
        self.x = torch.randn(n, 4, generator=generator) + 2 * torch.tensor(self.y)[:, None]

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return self.x[i] + 0.1 * random.random() + 0.1 * torch.rand(()), self.y[i]


def points() -> Any:
    return Points(160, 0), Points(40, 1)


class Net(nn.Module):
    def __init__(self, num_classes: int, width: int = 8) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, num_classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Needs(Net):
    def __init__(self, depth: int, num_classes: int = 2) -> None:
        super().__init__(num_classes, depth)


def three_outputs() -> nn.Module:
    return Net(3)


def no_network(num_classes: int) -> int:
    return num_classes


def no_data() -> int:
    return 5


def failing() -> Any:
    raise KeyError("rate")


VALUE = 3


def mine() -> Run:
    return Run(
        name="mine",
        about="two clouds",
        data=DataSpec(f"{__file__}:points", validation=0.2),
        model=ModelSpec(f"{__file__}:Net", {"width": 5}),
        base=BaseSpec(lr=0.5),
        epochs=2,
        batch_size=32,
        label_smoothing=0.0,
    )
