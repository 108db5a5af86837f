"""The few pieces that the image networks share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn


def conv3x3(in_channels: int, out_channels: int, stride: int = 1) -> nn.Conv2d:
    """A 3×3 convolution that keeps the size at stride 1."""
    return nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)


def conv1x1(in_channels: int, out_channels: int, stride: int = 1) -> nn.Conv2d:
    """A 1×1 convolution."""
    return nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False)


def stage(
    block: Callable[[int, int, int], nn.Module],
    in_channels: int,
    out_channels: int,
    n: int,
    stride: int = 1,
) -> nn.Sequential:
    """n blocks of (in_channels, out_channels, stride), of which the first changes the shape."""
    rest = [block(out_channels, out_channels, 1) for _ in range(n - 1)]
    return nn.Sequential(block(in_channels, out_channels, stride), *rest)


def norm_relu(norm: nn.BatchNorm2d, x: Tensor) -> Tensor:
    """Normalization, then ReLU."""
    return F.relu(norm(x))


def pooled(x: Tensor) -> Tensor:
    """The mean over all pixels, whatever the size of the image: (N, C, H, W) -> (N, C)."""
    return x.mean(dim=(2, 3))


def kaiming_normal(
    model: nn.Module, mode: Literal["fan_in", "fan_out"] = "fan_in", linear: bool = False
) -> None:
    """Draw weights from N(0, 2 / fan) (He et al., ICCV 2015); biases of convolutions are 0.

    Args:
        model: The network to initialize in place.
        mode: "fan_in" or "fan_out".
        linear: Whether weights of linear layers are drawn in the same way.
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d) or (linear and isinstance(module, nn.Linear)):
            nn.init.kaiming_normal_(module.weight, mode=mode, nonlinearity="relu")
        if isinstance(module, nn.Conv2d) and module.bias is not None:
            nn.init.zeros_(module.bias)


def count_parameters(model: nn.Module) -> int:
    """How many numbers training changes."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)
