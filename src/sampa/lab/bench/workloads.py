"""What is trained in a benchmark: a network, random batches of the right shape, and a loss."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD, AdamW, Optimizer

from sampa.lab.devices import in_suited_layout, move_model
from sampa.lab.files import read_json
from sampa.lab.models import MODELS, build
from sampa.lab.models.own import build_own, logits_of
from sampa.lab.named import HUGGING_FACE, folder_of, is_own
from sampa.loss import Loss
from sampa.messages import require, require_choice, unknown

TEXT = ("bert-mini", "bert-base", "minilm")
LARGE_IMAGES = {"resnet50": 224, "vit-b-16": 224, "efficientnet-lite0": 224}
IMAGE_OPTIONS: dict[str, dict[str, Any]] = {
    "mlp": {"in_channels": 3, "image_size": 32, "width": 256},
    **{name: {"in_channels": 3} for name in MODELS if name not in (*TEXT, "mlp")},
}
IMAGE_CLASSES = 10
BENCH_TOKENS, VOCABULARY = 64, 4096
DISTINCT_BATCHES = 4


@dataclass(frozen=True)
class Workload:
    """A network and its batches.

    Attributes:
        model: One of ours, or the user's own.
        batch_size: Samples in a batch.
        base: The base optimizer: sgd (with momentum) or adamw.
        shape: Of one sample for a network of the user's own, such as 3x32x32; empty for the usual.
    """

    model: str
    batch_size: int
    base: str = "sgd"
    shape: str = ""

    def __post_init__(self) -> None:
        if self.model not in MODELS and not is_own(self.model):
            own = "; your own is named as file.py:NAME, package.module:NAME or hf:PATH"
            raise ValueError(unknown("model", self.model, MODELS) + own)
        require("shape", self.shape, self.shape == "" or is_own(self.model), "left to our models")
        right = re.fullmatch(r"([1-9]\d*(x[1-9]\d*)*)?", self.shape) is not None
        require("shape", self.shape, right, "numbers joined by x, such as 3x32x32")
        require("batch_size", self.batch_size, self.batch_size >= 2, ">= 2")
        require_choice("base", self.base, ("sgd", "adamw"))

    def __str__(self) -> str:
        return f"{self.model}, batch {self.batch_size}"

    def inputs(self) -> tuple[tuple[int, ...], int]:
        """The shape of one sample, and how many tokens there are; 0 if samples are not text."""
        if self.shape:
            return tuple(map(int, self.shape.split("x"))), 0
        if self.model in TEXT:
            return (BENCH_TOKENS,), VOCABULARY
        if self.model.startswith(HUGGING_FACE):
            config = read_json(folder_of(self.model) / "config.json")
            if "vocab_size" in config:
                tokens = min(BENCH_TOKENS, config.get("max_position_embeddings", BENCH_TOKENS))
                return (tokens,), min(VOCABULARY, config["vocab_size"])
            side = config.get("image_size", 224)
            return (config.get("num_channels", 3), side, side), 0
        side = LARGE_IMAGES.get(self.model, 32)
        return (3, side, side), 0

    def network(self) -> nn.Module:
        """The network with the same random weights at every call."""
        torch.manual_seed(0)
        if not is_own(self.model):
            return build(self.model, num_classes=IMAGE_CLASSES, **IMAGE_OPTIONS.get(self.model, {}))
        (first, *rest), tokens = self.inputs()
        image = {"in_channels": first} if len(rest) == 2 and not tokens else {}
        return build_own(self.model, {}, {"num_classes": IMAGE_CLASSES, **image})

    def require_fitting(self) -> None:
        """Let a network of the user's own see one batch, before anything is begun.

        Raises:
            ValueError: If it does not take it, or returns no logits.
        """
        if is_own(self.model):
            inputs, _ = Bench(self, torch.device("cpu"), 0, 1)._batch(torch.Generator())
            shape = "x".join(map(str, inputs.shape[1:]))
            try:
                logits_of(self.network()(inputs), len(inputs), IMAGE_CLASSES)
            except (RuntimeError, TypeError, IndexError) as error:
                raise ValueError(
                    f"{self.model} does not take inputs of {shape} ({error}); say what a sample "
                    "of yours is like: --shape 3x32x32"
                ) from error


@dataclass(frozen=True)
class Bench:
    """A workload, and the rank that works on it."""

    workload: Workload
    device: torch.device
    rank: int
    ranks: int

    def model(self) -> nn.Module:
        """The network with the same random weights at every call."""
        model = self.workload.network()
        move_model(model, self.device)
        return model

    def optimizer(self, model: nn.Module) -> Optimizer:
        if self.workload.base == "adamw":
            return AdamW(model.parameters(), lr=1e-4, fused=True)
        return SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=5e-4, fused=True)

    def batches(self, *, halves: bool = False) -> Iterator[Any]:
        """Endless batches; with `halves`, this rank's share of each."""
        part, parts = (self.rank, self.ranks) if halves else (0, 1)
        generator = torch.Generator().manual_seed(1)
        whole = [self._batch(generator) for _ in range(DISTINCT_BATCHES)]
        return cycle([tuple(self._placed(t.chunk(parts)[part]) for t in b) for b in whole])

    def _placed(self, t: Tensor) -> Tensor:
        return in_suited_layout(t.to(self.device), self.device)

    def _batch(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        n, (shape, tokens) = self.workload.batch_size, self.workload.inputs()
        if tokens:
            inputs = torch.randint(tokens, (n, *shape), generator=generator)
        else:
            inputs = torch.randn(n, *shape, generator=generator)
        return inputs, torch.randint(IMAGE_CLASSES, (n,), generator=generator)

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
