"""GLUE tasks for a sentence classifier."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import sampa
from sampa.noise import derive_seed
from sampa.train.data.glue import GlueTask, find_task, load_glue
from sampa.train.data.metrics import glue_metrics, predictions
from sampa.train.data.text_batches import (
    EncodedText,
    TextBatches,
    TextEvalBatches,
    encode,
    load_tokenizer,
)
from sampa.train.models import find_minilm
from sampa.train.run import Run


@dataclass(frozen=True)
class TextTask:
    """A GLUE task. Models are judged on the development set: GLUE's test labels are not public."""

    task: GlueTask
    batches: TextBatches
    development: EncodedText
    label_smoothing: float
    eval_batch_size: int = 64

    @property
    def num_classes(self) -> int:
        return self.task.num_labels

    @property
    def metric(self) -> str:
        return self.task.metrics[0]

    def model_options(self) -> dict[str, Any]:
        return {"num_classes": self.num_classes}

    def loss(self, model: nn.Module, batch: Any) -> sampa.Loss:
        logits = _logits(model, batch)
        labels = batch["labels"]
        if self.task.is_regression:
            per_sample = (logits[:, 0] - labels).square()
        else:
            per_sample = F.cross_entropy(
                logits, labels, reduction="none", label_smoothing=self.label_smoothing
            )
        return sampa.Loss(per_sample.mean(), per_sample, logits, labels, batch["index"])

    @torch.inference_mode()
    def evaluate(self, model: nn.Module, split: str) -> dict[str, float]:
        # Development sets are small, and correlations do not add up: each rank does all of it.
        device = next(model.parameters()).device
        outputs: list[Tensor] = []
        labels: list[Tensor] = []
        for batch in TextEvalBatches(self.development, None, self.eval_batch_size):
            outputs.append(_logits(model, {k: v.to(device) for k, v in batch.items()}).cpu())
            labels.append(batch["labels"])
        scores = glue_metrics(
            self.task, predictions(self.task, torch.cat(outputs)), torch.cat(labels)
        )
        return {name: 100 * value for name, value in scores.items()}

    def training_accuracy(self, model: nn.Module) -> float | None:
        """Not measured: fine-tuning passes over its data so few times that it would show."""
        return None


def _logits(model: nn.Module, batch: Any) -> Tensor:
    names = ("input_ids", "attention_mask", "token_type_ids")
    return model(**{name: batch[name] for name in names}).float()


def open_text_task(run: Run, data_dir: Path | None, *, shard: int, shards: int) -> TextTask:
    """The GLUE task of a run, tokenized for its model."""
    task = find_task(run.data.name.removeprefix("glue/"))
    tokenizer = load_tokenizer(_tokenizer_folder(run))
    train = encode(load_glue(data_dir, task.name, "train"), tokenizer)
    development = encode(load_glue(data_dir, task.name, task.development[0]), tokenizer)
    seed = derive_seed(run.seed, "batches")
    batches = TextBatches(train, None, run.batch_size, seed, shard, shards)
    return TextTask(task, batches, development, run.label_smoothing)


def _tokenizer_folder(run: Run) -> Path:
    """Where the model's tokenizer is: beside its weights."""
    path = run.model.options.get("path")
    if path is None and run.model.name != "minilm":
        raise ValueError(
            f"{run.model.name} needs a folder with its weights and tokenizer; "
            "pass --model-path, or take a recipe that ends in -cpu (MiniLM)"
        )
    return find_minilm() if path is None else Path(path)
