"""GLUE tasks for a sentence classifier."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import sampa
from sampa.execution.randomness import derive_seed
from sampa.lab.data.draws import permutation
from sampa.lab.data.glue import GlueTask, find_task, load_glue
from sampa.lab.data.metrics import glue_metrics, predictions
from sampa.lab.data.plans import Sequential, Shuffled, train_validation_split
from sampa.lab.data.text_batches import MAX_LENGTH, EncodedText, TextBatches, encode, load_tokenizer
from sampa.lab.models.transformer import find_minilm
from sampa.lab.training.run import Run
from sampa.messages import require


@dataclass(frozen=True)
class TextTask:
    """A GLUE task. Models are judged on the development set: GLUE's test labels are not public.

    Attributes:
        splits: Text to be judged on by name, with the samples of it that count. Accuracy on the
            training data is not measured: fine-tuning makes too few passes to learn it by heart.
    """

    task: GlueTask
    batches: TextBatches
    splits: dict[str, tuple[EncodedText, np.ndarray]]
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
        data, indices = self.splits[split]
        for batch in TextBatches(data, Sequential(indices, self.eval_batch_size)):
            outputs.append(_logits(model, {k: v.to(device) for k, v in batch.items()}).cpu())
            labels.append(batch["labels"])
        scores = glue_metrics(
            self.task, predictions(self.task, torch.cat(outputs)), torch.cat(labels)
        )
        return {name: 100 * value for name, value in scores.items()}


def _logits(model: nn.Module, batch: Any) -> Tensor:
    names = ("input_ids", "attention_mask", "token_type_ids")
    return model(**{name: batch[name] for name in names}).float()


def open_text_task(run: Run, data_dir: Path | None, *, shard: int, shards: int) -> TextTask:
    """The GLUE task of a run, tokenized for its model."""
    task = find_task(run.data.name.removeprefix("glue/"))
    tokenizer = load_tokenizer(_tokenizer_folder(run))
    longest = run.data.size or MAX_LENGTH
    train, development = (
        encode(load_glue(data_dir, task.name, split), tokenizer, longest)
        for split in ("train", task.development[0])
    )
    size = len(train) if run.data.subset is None else run.data.subset
    fits = 1 <= size <= len(train)
    require("subset", size, fits, f"between 1 and the {len(train)} samples")
    part = np.arange(len(train))
    if size < len(train):
        part = np.sort(permutation(len(train), 0, "subset")[:size])
    kept, held_back = train_validation_split(size, run.data.validation, run.seed)
    seed = derive_seed(run.seed, "batches")
    plan = Shuffled(part[kept], run.batch_size, seed, shard, shards)
    test = (development, np.arange(len(development)))
    # Where nothing is held back, nothing is chosen: the scores only show how a run gets on.
    validation = (train, part[held_back]) if len(held_back) else test
    splits = {"validation": validation, "test": test}
    return TextTask(task, TextBatches(train, plan), splits, run.label_smoothing)


def _tokenizer_folder(run: Run) -> Path:
    """Where the model's tokenizer is: beside its weights."""
    path = run.model.options.get("path")
    if path is None and run.model.name != "minilm":
        raise ValueError(
            f"{run.model.name} needs a folder with its weights and tokenizer; "
            "pass --model-path, or take a recipe that ends in -cpu (MiniLM)"
        )
    return find_minilm() if path is None else Path(path)
