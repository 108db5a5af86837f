"""The residual networks for CIFAR of He et al. (CVPR 2016, section 4.2).

Depth 6n+2: a 3x3 convolution, three stages of n blocks with 16, 32 and 64 channels, and one linear
layer. Where the shape changes, the shortcut has no parameters (option A): every second pixel, and
zeros for the new channels. Names and layout of the weights are those of the networks published at
github.com/akamaster/pytorch_resnet_cifar10, so that `load_published` can read them.
"""

from __future__ import annotations

import os
import re

import torch.nn.functional as F
from torch import Tensor, nn

from sampa.lab.models.layers import conv3x3, kaiming_normal, norm_relu, pooled, stage
from sampa.lab.models.weights import FilePath, read_weights, started_from
from sampa.messages import require


class BasicBlock(nn.Module):
    """y = relu(shortcut(x) + F(x)), with F two convolutions."""

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = conv3x3(in_channels, channels, stride)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = conv3x3(channels, channels)
        self.bn2 = nn.BatchNorm2d(channels)
        self.stride = stride
        self.padding = (channels - in_channels) // 2  # zero channels on either side

    def shortcut(self, x: Tensor) -> Tensor:
        if self.stride == 1 and self.padding == 0:
            return x
        sampled = x[:, :, :: self.stride, :: self.stride]
        return F.pad(sampled, (0, 0, 0, 0, self.padding, self.padding))

    def forward(self, x: Tensor) -> Tensor:
        out = norm_relu(self.bn1, self.conv1(x))
        out = self.bn2(self.conv2(out))
        return F.relu(out + self.shortcut(x))


class CifarResNet(nn.Module):
    """A residual network of depth 6n+2 for small images.

    269,722 parameters at depth 20, 464,154 at 32, 853,018 at 56.

    Args:
        depth: 8, 20, 32, 44, 56, 110, or any other 6n+2.
        num_classes: Outputs.
        in_channels: 3 for color, 1 for gray.
        width: Channels of the first stage; 16 in the paper.
    """

    def __init__(
        self, depth: int, num_classes: int = 10, in_channels: int = 3, width: int = 16
    ) -> None:
        super().__init__()
        require("depth", depth, depth >= 8 and depth % 6 == 2, "6n+2: 8, 20, 32, 44, 56, 110")
        require("width", width, width >= 2 and width % 2 == 0, "even and >= 2")
        n = (depth - 2) // 6
        self.conv1 = conv3x3(in_channels, width)
        self.bn1 = nn.BatchNorm2d(width)
        self.layer1 = stage(BasicBlock, width, width, n)
        self.layer2 = stage(BasicBlock, width, 2 * width, n, stride=2)
        self.layer3 = stage(BasicBlock, 2 * width, 4 * width, n, stride=2)
        self.linear = nn.Linear(4 * width, num_classes)
        kaiming_normal(self, linear=True)

    def forward(self, x: Tensor) -> Tensor:
        out = norm_relu(self.bn1, self.conv1(x))
        out = self.layer3(self.layer2(self.layer1(out)))
        return self.linear(pooled(out))


def load_published(path: FilePath) -> CifarResNet:
    """A network with published weights, in evaluation mode; the file tells its sizes.

    Inputs are scaled to [0, 1] and normalized with mean (0.485, 0.456, 0.406) and standard
    deviation (0.229, 0.224, 0.225).

    The files are pickles, and trusting them is the user's decision: they are read with
    `weights_only=True`, which refuses everything but tensors and plain containers.

    Raises:
        ValueError: If the file holds something else than one of these networks.
    """
    weights = read_weights(path)
    if not {"conv1.weight", "layer1.0.conv1.weight", "linear.weight"} <= weights.keys():
        raise ValueError(
            f"path must be a file of a CIFAR ResNet (conv1, layer1..3, linear), got "
            f"{os.fspath(path)!r} with keys such as {', '.join(list(weights)[:3])}"
        )
    blocks = sum(re.fullmatch(r"layer\d\.\d+\.conv1\.weight", name) is not None for name in weights)
    width, in_channels = weights["conv1.weight"].shape[:2]
    classes = weights["linear.weight"].shape[0]
    network = CifarResNet(2 * blocks + 2, classes, in_channels, width)
    return started_from(path, network).eval()
