"""ResNet-50 for ImageNet (He et al., CVPR 2016), in the form known as v1.5.

Bottleneck blocks 1x1 - 3x3 - 1x1 with four times as many channels at the end; where the image is
halved, the 3x3 convolution does it (the paper's first 1x1 would drop three pixels of four). Names
of the weights are those of torchvision's resnet50, so that its files can be given as `path`.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from sampa.lab.models.layers import conv1x1, conv3x3, kaiming_normal, norm_relu, pooled, stage

EXPANSION = 4


class Bottleneck(nn.Module):
    """y = relu(shortcut(x) + F(x)), with F narrow in the middle."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        channels = out_channels // EXPANSION
        self.conv1 = conv1x1(in_channels, channels)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = conv3x3(channels, channels, stride)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = conv1x1(channels, out_channels)
        self.bn3 = nn.BatchNorm2d(out_channels)
        self.downsample = None
        if stride != 1 or in_channels != out_channels:
            self.downsample = nn.Sequential(
                conv1x1(in_channels, out_channels, stride), nn.BatchNorm2d(out_channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        out = norm_relu(self.bn1, self.conv1(x))
        out = norm_relu(self.bn2, self.conv2(out))
        out = self.bn3(self.conv3(out))
        return F.relu(out + (x if self.downsample is None else self.downsample(x)))


class ResNet50(nn.Module):
    """A stem that divides the image by four, four stages of bottlenecks, a linear layer.

    25,557,032 parameters with 1,000 classes.

    Args:
        num_classes: Outputs.
        in_channels: 3 for color, 1 for gray.
    """

    def __init__(self, num_classes: int = 1000, in_channels: int = 3) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = stage(Bottleneck, 64, 256, 3)
        self.layer2 = stage(Bottleneck, 256, 512, 4, stride=2)
        self.layer3 = stage(Bottleneck, 512, 1024, 6, stride=2)
        self.layer4 = stage(Bottleneck, 1024, 2048, 3, stride=2)
        self.fc = nn.Linear(2048, num_classes)
        kaiming_normal(self, mode="fan_out")

    def forward(self, x: Tensor) -> Tensor:
        out = F.max_pool2d(norm_relu(self.bn1, self.conv1(x)), 3, stride=2, padding=1)
        out = self.layer4(self.layer3(self.layer2(self.layer1(out))))
        return self.fc(pooled(out))
