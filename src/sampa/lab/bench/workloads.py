"""What is trained in a benchmark: a network, random batches of the right shape, and a loss."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD, AdamW, Optimizer

from sampa.lab.models import MODELS, build
from sampa.loss import Loss
from sampa.messages import require, require_choice, unknown

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
class Workload:
    """A network, the size of its batches, and the base optimizer: sgd (with momentum) or adamw."""

    model: str
    batch_size: int
    base: str = "sgd"

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise ValueError(unknown("model", self.model, MODELS))
        require("batch_size", self.batch_size, self.batch_size >= 2, ">= 2")
        require_choice("base", self.base, ("sgd", "adamw"))

    def __str__(self) -> str:
        return f"{self.model}, batch {self.batch_size}"


@dataclass(frozen=True)
class Bench:
    """A workload, and the rank that works on it."""

    workload: Workload
    device: torch.device
    rank: int
    ranks: int

    def model(self) -> nn.Module:
        """The network with the same random weights at every call."""
        torch.manual_seed(0)
        name = self.workload.model
        return build(name, num_classes=CLASSES, **IMAGE_OPTIONS.get(name, {})).to(self.device)

    def optimizer(self, model: nn.Module) -> Optimizer:
        if self.workload.base == "adamw":
            return AdamW(model.parameters(), lr=1e-4, fused=True)
        return SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=5e-4, fused=True)

    def batches(self, *, halves: bool = False) -> Iterator[Any]:
        """Endless batches; with `halves`, this rank's share of each."""
        part, parts = (self.rank, self.ranks) if halves else (0, 1)
        generator = torch.Generator().manual_seed(1)
        whole = [self._batch(generator) for _ in range(DISTINCT_BATCHES)]
        return cycle([tuple(t.chunk(parts)[part].to(self.device) for t in b) for b in whole])

    def _batch(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        n, model = self.workload.batch_size, self.workload.model
        if model in TEXT:
            inputs = torch.randint(VOCABULARY, (n, TOKENS), generator=generator)
        else:
            side = LARGE_IMAGES.get(model, 32)
            inputs = torch.randn(n, 3, side, side, generator=generator)
        return inputs, torch.randint(CLASSES, (n,), generator=generator)

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """Cross-entropy of the batch."""
        inputs, targets = batch
        return F.cross_entropy(model(inputs), targets)


def detailed_loss(model: nn.Module, batch: Any) -> Loss:
    """The same with what SAF, MESA and ESAM need to know."""
    inputs, targets = batch
    logits = model(inputs)
    per_sample = F.cross_entropy(logits, targets, reduction="none")
    index = torch.arange(len(targets), device=targets.device)
    return Loss(per_sample.mean(), per_sample, logits, targets, index)
