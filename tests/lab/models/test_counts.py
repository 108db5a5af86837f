"""Parameter counts: the quickest proof that a network is the one of its paper."""

from typing import Any

import pytest
import torch
from torch import nn

from sampa.lab.models import build
from sampa.lab.models.layers import count_parameters

COUNTS = {
    "mlp": 8_970,
    "conv3": 94_762,
    "pooled-resnet": 464_170,
    "resnet8": 75_290,
    "resnet20": 269_722,
    "resnet32": 464_154,
    "resnet44": 658_586,
    "resnet56": 853_018,
    "resnet110": 1_727_962,
    "wrn-28-2": 1_467_610,
    "wrn-28-10": 36_479_194,
    "wrn-28-2-sampa-script": 1_855_578,
    "wrn-28-10-sampa-script": 46_160_474,
    "vgg19-bn": 20_565_834,
    "densenet121": 6_956_298,
}
IMAGENET_COUNTS = {"resnet50": 25_557_032, "efficientnet-lite0": 4_652_008}
TRANSFORMER_COUNTS = {
    ("vit-b-16", 1000): 86_567_656,
    ("bert-base", 2): 109_483_778,
    ("bert-mini", 2): 4_307_714,
}


def without_weights(name: str, **options: Any) -> nn.Module:
    with torch.device("meta"):
        return build(name, **options)


@pytest.mark.parametrize("name", COUNTS)
def test_count_with_10_classes(name: str) -> None:
    assert count_parameters(without_weights(name, num_classes=10)) == COUNTS[name]


@pytest.mark.parametrize("name", IMAGENET_COUNTS)
def test_count_with_1000_classes(name: str) -> None:
    assert count_parameters(without_weights(name, num_classes=1000)) == IMAGENET_COUNTS[name]


@pytest.mark.parametrize(("name", "num_classes"), TRANSFORMER_COUNTS)
def test_count_of_a_transformer(name: str, num_classes: int) -> None:
    pytest.importorskip("transformers")
    model = without_weights(name, num_classes=num_classes)
    assert count_parameters(model) == TRANSFORMER_COUNTS[name, num_classes]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("resnet56", 55),
        ("wrn-28-2", 25),
        ("wrn-28-10", 25),
        ("wrn-28-2-sampa-script", 31),
        ("wrn-28-10-sampa-script", 31),
        ("vgg19-bn", 16),
    ],
)
def test_number_of_3x3_convolutions(name: str, expected: int) -> None:
    modules = without_weights(name).modules()
    assert sum(isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3) for m in modules) == expected


def test_the_count_leaves_out_frozen_parameters() -> None:
    model = build("mlp")
    first = next(model.parameters()).requires_grad_(False)
    assert count_parameters(model) == COUNTS["mlp"] - first.numel()
