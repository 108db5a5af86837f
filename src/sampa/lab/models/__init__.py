"""Networks by name: `build("resnet56", num_classes=10)`.

Every factory takes `num_classes`; those for images take `in_channels` too. The signature of what
`MODELS` maps a name to says which other options there are.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from sampa.lab.models.densenet import DenseNet121
from sampa.lab.models.efficientnet import EfficientNetLite, efficientnet_lite0_imagenet
from sampa.lab.models.resnet50 import ResNet50
from sampa.lab.models.resnet_cifar import CifarResNet
from sampa.lab.models.small import MLP, Conv3, PooledResNet
from sampa.lab.models.transformer import bert_base, bert_mini, minilm, vit_b_16
from sampa.lab.models.vgg import VGG19
from sampa.lab.models.weights import FilePath, started_from
from sampa.lab.models.wide_resnet import wrn, wrn_sampa_script
from sampa.messages import require, unknown

CIFAR_RESNETS = {f"resnet{d}": partial(CifarResNet, d) for d in (8, 20, 32, 44, 56, 110)}
PUBLISHED = (*CIFAR_RESNETS, "resnet50", "efficientnet-lite0")  # as files of state dictionaries
MODELS: dict[str, Callable[..., nn.Module]] = {
    "mlp": MLP,
    "conv3": Conv3,
    "pooled-resnet": PooledResNet,
    **CIFAR_RESNETS,
    "wrn-28-2": partial(wrn, 28, 2),
    "wrn-28-10": partial(wrn, 28, 10),
    "wrn-28-2-sampa-script": partial(wrn_sampa_script, 2),
    "wrn-28-10-sampa-script": partial(wrn_sampa_script, 10),
    "vgg19-bn": VGG19,
    "densenet121": DenseNet121,
    "resnet50": ResNet50,
    "efficientnet-lite0": EfficientNetLite,
    "efficientnet-lite0-imagenet": efficientnet_lite0_imagenet,
    "vit-b-16": vit_b_16,
    "bert-mini": bert_mini,
    "bert-base": bert_base,
    "minilm": minilm,
}


def build(name: str, *, path: FilePath | None = None, **options: Any) -> nn.Module:
    """The network of that name, ready to train; new weights come from torch's global generator.

    Args:
        name: One of `MODELS`.
        path: A file (or for transformers a folder) of weights to start from, which is trusted, see
            `read_weights`; a head for another number of classes starts at random. None means
            random weights, but for minilm those of its package.
        options: `num_classes`, `in_channels` and what else the factory takes.

    Raises:
        ValueError: For an unknown name or option, naming the nearest; for unfit weights.
    """
    if name not in MODELS:
        raise ValueError(unknown("model", name, MODELS))
    known = inspect.signature(MODELS[name]).parameters
    for option in options:
        if option not in known:
            raise ValueError(unknown(f"option of {name}", option, known))
    if path is None:
        return MODELS[name](**options)
    published = "path" in known or name in PUBLISHED
    require(f"path of {name}", path, published, "None (no weights of it are published)")
    if "path" in known:
        return MODELS[name](path=path, **options)
    return started_from(path, MODELS[name](**options))
