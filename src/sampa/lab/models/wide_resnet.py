"""Wide residual networks (Zagoruyko & Komodakis, BMVC 2016), and the edition of SAMPa's script.

WRN-d-k has (d - 4) / 6 blocks a stage and 16k, 32k, 64k channels. A block normalizes before it
convolves: y = x + F(x); the first of a stage, which changes the shape, takes both branches from
a = relu(bn(x)): y = W a + F(a), with W a 1x1 convolution. Depth 28 makes 25 3x3 convolutions.

The networks that SAMPa's published script builds under the names WRN-28-2 and WRN-28-10 come from
the example of github.com/davda54/sam: there (d - 4) / 6 counts the blocks *after* the first of a
stage, so each stage has five instead of four (31 3x3 convolutions, depth 34), and the classifier
starts at zero. The paper does not say so, and the recipes build the networks that it names. For a
comparison with the script, or if its numbers turn out to come from it, the second edition has
names of its own: `ModelSpec("wrn-28-10-sampa-script")`. Parameters with 10 classes:

    wrn-28-2   1,467,610    wrn-28-2-sampa-script   1,855,578
    wrn-28-10  36,479,194   wrn-28-10-sampa-script  46,160,474
"""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from sampa.lab.models.layers import conv1x1, conv3x3, kaiming_normal, norm_relu, pooled, stage
from sampa.messages import require


class WideBlock(nn.Module):
    """Two pre-activated convolutions beside an identity, or a 1x1 convolution at a new shape."""

    def __init__(self, in_channels: int, channels: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(in_channels)
        self.conv1 = conv3x3(in_channels, channels, stride)
        self.bn2 = nn.BatchNorm2d(channels)
        self.dropout = nn.Dropout(dropout)
        self.conv2 = conv3x3(channels, channels)
        new_shape = stride != 1 or in_channels != channels
        self.shortcut = conv1x1(in_channels, channels, stride) if new_shape else None

    def forward(self, x: Tensor) -> Tensor:
        a = norm_relu(self.bn1, x)
        out = self.dropout(norm_relu(self.bn2, self.conv1(a)))
        out = self.conv2(out)
        return out + (x if self.shortcut is None else self.shortcut(a))


class WideResNet(nn.Module):
    """Three stages of n blocks, k times as wide as a CIFAR ResNet.

    Args:
        n: Blocks a stage.
        k: Widening factor.
        num_classes: Outputs.
        in_channels: 3 for color, 1 for gray.
        dropout: Between the convolutions of a block.
        zero_head: Start the linear layer at zero, as SAMPa's script does.
    """

    def __init__(
        self,
        n: int,
        k: int,
        num_classes: int = 10,
        in_channels: int = 3,
        dropout: float = 0.0,
        zero_head: bool = False,
    ) -> None:
        super().__init__()
        self.conv1 = conv3x3(in_channels, 16)
        block = partial(WideBlock, dropout=dropout)
        self.stage1 = stage(block, 16, 16 * k, n)
        self.stage2 = stage(block, 16 * k, 32 * k, n, stride=2)
        self.stage3 = stage(block, 32 * k, 64 * k, n, stride=2)
        self.bn = nn.BatchNorm2d(64 * k)
        self.linear = nn.Linear(64 * k, num_classes)
        kaiming_normal(self)
        nn.init.zeros_(self.linear.bias)
        if zero_head:
            nn.init.zeros_(self.linear.weight)

    def forward(self, x: Tensor) -> Tensor:
        out = self.stage3(self.stage2(self.stage1(self.conv1(x))))
        return self.linear(pooled(norm_relu(self.bn, out)))


def wrn(
    depth: int, k: int, num_classes: int = 10, in_channels: int = 3, dropout: float = 0.0
) -> WideResNet:
    """WRN-depth-k as in its paper; depth is 6n+4: 10, 16, 22, 28, 34, 40."""
    require("depth", depth, depth >= 10 and depth % 6 == 4, "6n+4: 10, 16, 22, 28, 34, 40")
    return WideResNet((depth - 4) // 6, k, num_classes, in_channels, dropout)


def wrn_sampa_script(
    k: int, num_classes: int = 10, in_channels: int = 3, dropout: float = 0.0
) -> WideResNet:
    """What SAMPa's script calls WRN-28-k: five blocks a stage, a linear layer that starts at 0."""
    return WideResNet(5, k, num_classes, in_channels, dropout, zero_head=True)
