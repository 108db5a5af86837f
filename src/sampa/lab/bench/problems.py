"""What is trained in a benchmark: a network, random batches of the right shape, and a loss."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sampa.lab.models import MODELS, build
from sampa.losses import Loss
from sampa.messages import require, unknown

TEXT = ("bert-mini", "bert-base", "minilm")
LARGE_IMAGES = {"resnet50": 224, "vit-b-16": 224, "efficientnet-lite0": 224}
IMAGE_OPTIONS: dict[str, dict[str, Any]] = {
    "mlp": {"in_channels": 3, "image_size": 32, "width": 256},
    **{name: {"in_channels": 3} for name in MODELS if name not in (*TEXT, "mlp")},
}
CLASSES = 10
TOKENS, VOCABULARY = 64, 4096
DISTINCT_BATCHES = 4


@dataclass(frozen=True)
class Problem:
    """A network and the size of its batches."""

    model: str
    batch_size: int

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise ValueError(unknown("model", self.model, MODELS))
        require("batch_size", self.batch_size, self.batch_size >= 2, ">= 2")

    def network(self, device: torch.device) -> nn.Module:
        """The network with the same random weights at every call."""
        torch.manual_seed(0)
        return build(self.model, num_classes=CLASSES, **IMAGE_OPTIONS.get(self.model, {})).to(
            device
        )

    def batches(self, device: torch.device, part: int = 0, parts: int = 1) -> cycle[Any]:
        """Endless batches; with several parts, this rank's share of each."""
        generator = torch.Generator().manual_seed(1)
        whole = [self._batch(generator) for _ in range(DISTINCT_BATCHES)]
        return cycle([tuple(t.chunk(parts)[part].to(device) for t in batch) for batch in whole])

    def _batch(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        n = self.batch_size
        if self.model in TEXT:
            inputs = torch.randint(VOCABULARY, (n, TOKENS), generator=generator)
        else:
            side = LARGE_IMAGES.get(self.model, 32)
            inputs = torch.randn(n, 3, side, side, generator=generator)
        return inputs, torch.randint(CLASSES, (n,), generator=generator)


def training_loss(model: nn.Module, batch: Any) -> Tensor:
    """Cross-entropy of the batch."""
    inputs, targets = batch
    return F.cross_entropy(model(inputs), targets)


def detailed_loss(model: nn.Module, batch: Any) -> Loss:
    """The same with what SAF, MESA and ESAM need to know."""
    inputs, targets = batch
    logits = model(inputs)
    per_sample = F.cross_entropy(logits, targets, reduction="none")
    index = torch.arange(len(targets))
    return Loss(per_sample.mean(), per_sample, logits, targets, index)
