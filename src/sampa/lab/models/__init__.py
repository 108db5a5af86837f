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

from sampa.lab.models.densenet import densenet121
from sampa.lab.models.efficientnet import (
    efficientnet_lite0,
    efficientnet_lite0_imagenet,
    find_efficientnet_lite0,
)
from sampa.lab.models.layers import count_parameters
from sampa.lab.models.resnet50 import resnet50
from sampa.lab.models.resnet_cifar import load_published, resnet
from sampa.lab.models.small import MLP, Conv3
from sampa.lab.models.transformer import bert_base, bert_mini, find_minilm, minilm, vit_b_16
from sampa.lab.models.vgg import vgg19_bn
from sampa.lab.models.weights import FilePath
from sampa.lab.models.wide_resnet import (
    wrn_28_2,
    wrn_28_2_sampa_script,
    wrn_28_10,
    wrn_28_10_sampa_script,
)
from sampa.messages import require, unknown

__all__ = [
    "MODELS",
    "build",
    "count_parameters",
    "find_efficientnet_lite0",
    "find_minilm",
    "load_published",
]

MODELS: dict[str, Callable[..., nn.Module]] = {
    "mlp": MLP,
    "conv3": Conv3,
    "resnet8": partial(resnet, 8),
    "resnet20": partial(resnet, 20),
    "resnet32": partial(resnet, 32),
    "resnet44": partial(resnet, 44),
    "resnet56": partial(resnet, 56),
    "resnet110": partial(resnet, 110),
    "wrn-28-2": wrn_28_2,
    "wrn-28-10": wrn_28_10,
    "wrn-28-2-sampa-script": wrn_28_2_sampa_script,
    "wrn-28-10-sampa-script": wrn_28_10_sampa_script,
    "vgg19-bn": vgg19_bn,
    "densenet121": densenet121,
    "resnet50": resnet50,
    "efficientnet-lite0": efficientnet_lite0,
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
        path: A file (or for transformers a folder) of weights to start from, which is trusted.
            None means random ones, but for minilm those of its package.
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
    require(f"path of {name}", path, "path" in known, "None (no weights of it are published)")
    return MODELS[name](path=path, **options)
