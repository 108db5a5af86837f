"""DenseNet-121 (Huang et al., CVPR 2017) for CIFAR.

Every layer receives the outputs of all layers before it in its block. Growth rate 32, blocks of
6, 12, 24 and 16 bottleneck layers, and between them transitions that halve channels and image. The
stem is one 3x3 convolution without pooling, since the images are small.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sampa.lab.models.layers import conv1x1, conv3x3, norm_relu, pooled

BLOCKS = (6, 12, 24, 16)  # layers of each
GROWTH = 32  # channels that a layer adds


class DenseLayer(nn.Module):
    """A bottleneck layer: its output is put before what it received."""

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(in_channels)
        self.conv1 = conv1x1(in_channels, 4 * GROWTH)
        self.bn2 = nn.BatchNorm2d(4 * GROWTH)
        self.conv2 = conv3x3(4 * GROWTH, GROWTH)

    def forward(self, x: Tensor) -> Tensor:
        out = self.conv1(norm_relu(self.bn1, x))
        out = self.conv2(norm_relu(self.bn2, out))
        return torch.cat([out, x], dim=1)


class Transition(nn.Module):
    """Half the channels, half the height and width."""

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        self.bn = nn.BatchNorm2d(in_channels)
        self.conv = conv1x1(in_channels, in_channels // 2)

    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool2d(self.conv(norm_relu(self.bn, x)), 2)


class DenseNet121(nn.Module):
    """Four dense blocks with transitions between them: 6,956,298 parameters with 10 classes.

    Convolutions start from torch's default, as in SAMPa's script.

    Args:
        num_classes: Outputs.
        in_channels: 3 for color, 1 for gray.
    """

    def __init__(self, num_classes: int = 10, in_channels: int = 3) -> None:
        super().__init__()
        channels = 2 * GROWTH
        layers: list[nn.Module] = [conv3x3(in_channels, channels)]
        for i, size in enumerate(BLOCKS):
            if i > 0:
                layers.append(Transition(channels))
                channels //= 2
            layers.append(nn.Sequential(*(DenseLayer(channels + j * GROWTH) for j in range(size))))
            channels += size * GROWTH
        self.features = nn.Sequential(*layers)
        self.bn = nn.BatchNorm2d(channels)
        self.linear = nn.Linear(channels, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(pooled(norm_relu(self.bn, self.features(x))))
