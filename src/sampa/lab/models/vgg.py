"""VGG19 with batch normalization (Simonyan & Zisserman, ICLR 2015, configuration E), for CIFAR.

Sixteen 3x3 convolutions with biases and five poolings take 32x32 pixels to one; the head has two
hidden layers of 512 with dropout, as in SAMPa's script, instead of ImageNet's two of 4,096.
"""

from __future__ import annotations

from torch import Tensor, nn

from sampa.lab.models.layers import kaiming_normal, pooled

# Channels of the convolutions between two poolings.
VGG_STAGES = ((64, 64), (128, 128), (256,) * 4, (512,) * 4, (512,) * 4)


class VGG19(nn.Module):
    """Convolutions, then a multilayer perceptron: 20,565,834 parameters with 10 classes.

    Args:
        num_classes: Outputs.
        in_channels: 3 for color, 1 for gray.
        dropout: Before each hidden layer of the head.
    """

    def __init__(self, num_classes: int = 10, in_channels: int = 3, dropout: float = 0.5) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for stage in VGG_STAGES:
            for channels in stage:
                conv = nn.Conv2d(in_channels, channels, 3, padding=1)
                layers += [conv, nn.BatchNorm2d(channels), nn.ReLU()]
                in_channels = channels
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(512, 512),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(512, 512),
            nn.ReLU(),
            nn.Linear(512, num_classes),
        )
        kaiming_normal(self, mode="fan_out")

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(pooled(self.features(x)))
