"""A small network with BatchNorm and dropout, and images of digits."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import TensorDataset

CLIP = 0.3  # less than most norms of the gradients


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
