"""Networks small enough to train in seconds: for digits, and for reduced runs without a GPU."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

from sampa.lab.models.layers import conv3x3, pooled
from sampa.messages import require


class Conv3(nn.Module):
    """Three convolutions with normalization, ReLU and pooling, then one linear layer.

    The channels double (width, 2 width, 4 width) while the image halves twice; the last pooling
    takes the mean over what is left, so any image of at least 4x4 pixels fits.

    Args:
        num_classes: Outputs.
        in_channels: 3 for color, 1 for gray.
        width: Channels of the first convolution.
    """

    def __init__(self, num_classes: int = 10, in_channels: int = 3, width: int = 32) -> None:
        super().__init__()
        require("width", width, width >= 1, ">= 1")
        self.features = nn.Sequential(
            *conv_norm_relu(in_channels, width),
            nn.MaxPool2d(2),
            *conv_norm_relu(width, 2 * width),
            nn.MaxPool2d(2),
            *conv_norm_relu(2 * width, 4 * width),
        )
        self.linear = nn.Linear(4 * width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(pooled(self.features(x)))


class PooledResNet(Conv3):
    """The same with another pooling, and a residual block after the second and the last of them.

    Most of its work is done on small images, so that a step takes little time for the accuracy:
    after the networks by which D. Page trained CIFAR-10 in a minute (DAWNBench, 2018).

    Args:
        num_classes: Outputs.
        in_channels: 3 for color, 1 for gray.
        width: Channels of the first convolution; images need at least 8x8 pixels.
    """

    def __init__(self, num_classes: int = 10, in_channels: int = 3, width: int = 32) -> None:
        super().__init__(num_classes, in_channels, width)
        *pooled_twice, convolution, norm, relu = self.features
        self.features = nn.Sequential(
            *(*pooled_twice, ResidualPair(2 * width)),
            *(convolution, norm, relu, nn.MaxPool2d(2), ResidualPair(4 * width)),
        )


class ResidualPair(nn.Module):
    """x plus two convolutions of it."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.pair = nn.Sequential(
            *conv_norm_relu(channels, channels), *conv_norm_relu(channels, channels)
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.pair(x)


def conv_norm_relu(in_channels: int, channels: int) -> tuple[nn.Module, ...]:
    """Convolution, normalization, ReLU."""
    return conv3x3(in_channels, channels), nn.BatchNorm2d(channels), nn.ReLU()


class MLP(nn.Module):
    """Hidden layers with ReLU on the flattened image; no normalization, no randomness.

    Args:
        num_classes: Outputs.
        in_channels: 3 for color, 1 for gray.
        image_size: Height and width in pixels; 8 for the digits.
        width: Units of a hidden layer.
        hidden: Hidden layers.
    """

    def __init__(
        self,
        num_classes: int = 10,
        in_channels: int = 1,
        image_size: int = 8,
        width: int = 64,
        hidden: int = 2,
    ) -> None:
        super().__init__()
        require("hidden", hidden, hidden >= 1, ">= 1")
        sizes = [in_channels * image_size**2, *[width] * hidden]
        layers: list[nn.Module] = [nn.Flatten()]
        for size, next_size in pairwise(sizes):
            layers += [nn.Linear(size, next_size), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(width, num_classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)
