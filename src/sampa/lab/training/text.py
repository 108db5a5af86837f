"""GLUE tasks, and the user's own, for a sentence classifier."""

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
from sampa.lab.data.glue import GlueTask, TextData, find_task, load_glue
from sampa.lab.data.metrics import glue_metrics, predictions
from sampa.lab.data.plans import Sequential, Shuffled, train_validation_split
from sampa.lab.data.text_batches import MAX_LENGTH, EncodedText, TextBatches, encode, load_tokenizer
from sampa.lab.models.own import logits_of
from sampa.lab.models.transformer import find_minilm
from sampa.lab.named import HUGGING_FACE, folder_of
from sampa.lab.training.run import Run
from sampa.messages import require


@dataclass(frozen=True)
class TextTask:
    """A GLUE task, or one like it.

    Models are judged on the development set: GLUE's test labels are not public.

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
        logits = _outputs(model, batch, self.num_classes)
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
            there = {k: v.to(device) for k, v in batch.items()}
            outputs.append(_outputs(model, there, self.num_classes).cpu())
            labels.append(batch["labels"])
        scores = glue_metrics(
            self.task, predictions(self.task, torch.cat(outputs)), torch.cat(labels)
        )
        return {name: 100 * value for name, value in scores.items()}


def _outputs(model: nn.Module, batch: Any, number: int) -> Tensor:
    names = ("input_ids", "attention_mask", "token_type_ids")
    return logits_of(model(**{name: batch[name] for name in names}), len(batch["index"]), number)


def open_glue_task(run: Run, data_dir: Path | None, *, shard: int, shards: int) -> TextTask:
    """The GLUE task of a run."""
    task = find_task(run.data.name.removeprefix("glue/"))
    train, development = (
        load_glue(data_dir, task.name, split) for split in ("train", task.development[0])
    )
    return _opened(run, task, train, development, shard=shard, shards=shards)


def open_text_task(
    run: Run, train: TextData, test: TextData, *, shard: int, shards: int
) -> TextTask:
    """A task of the user's own: to tell the classes of texts, or of pairs of them."""
    require("number of classes", len(train.classes), len(train.classes) >= 2, ">= 2")
    task = GlueTask(run.data.name, (), "label", train.classes, ("accuracy",), "")
    return _opened(run, task, train, test, shard=shard, shards=shards)


def _opened(
    run: Run, task: GlueTask, train_text: TextData, test_text: TextData, *, shard: int, shards: int
) -> TextTask:
    """The task with its text tokenized for the run's model."""
    tokenizer, longest = load_tokenizer(_tokenizer_folder(run)), run.data.size or MAX_LENGTH
    train, development = (encode(text, tokenizer, longest) for text in (train_text, test_text))
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
    if run.model.name.startswith(HUGGING_FACE):
        return folder_of(run.model.name)
    path = run.model.options.get("path")
    if path is None and run.model.name != "minilm":
        raise ValueError(
            f"{run.model.name} needs a folder with its weights and tokenizer; "
            "pass --model-path, --model hf:PATH, or take a recipe that ends in -cpu (MiniLM)"
        )
    return find_minilm() if path is None else Path(path)
