"""Fine-tune a small BERT on pairs of sentences, as in GLUE, with Hugging Face's Trainer and SAMPa.

python examples/huggingface_glue.py
torchrun --nproc-per-node 2 examples/huggingface_glue.py     # the two gradients of a step at once

The sentences are generated: both of a pair say the same if they have the same words."""

from __future__ import annotations

import argparse
import tempfile
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, TrainingArguments

from sampa.integrations.transformers import SharpnessAwareTrainer

WORDS, LENGTH = 10, 4


class Pairs(Dataset[dict[str, Tensor]]):
    """Pairs of sentences with a label: 1 if they say the same."""

    def __init__(self, count: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.labels, half = torch.randint(0, 2, (count,), generator=generator), WORDS // 2
        first = torch.rand(count, half, generator=generator).argsort()[:, :LENGTH] + 2
        order = torch.rand(count, LENGTH, generator=generator).argsort()
        second = first.gather(1, order) + half * (1 - self.labels[:, None])  # same words or others
        marks = torch.tensor([0, 1]).expand(count, 2)  # [CLS] and [SEP]
        self.tokens = torch.cat([marks[:, :1], first, marks[:, 1:], second], dim=1)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"input_ids": self.tokens[index], "labels": self.labels[index]}


def accuracy(prediction: Any) -> dict[str, float]:
    return {"accuracy": float(np.mean(prediction.predictions.argmax(-1) == prediction.label_ids))}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2}
    config = BertConfig(vocab_size=WORDS + 2, num_hidden_layers=1, **sizes)
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            folder,
            per_device_train_batch_size=32,
            num_train_epochs=parser.parse_args().epochs,
            learning_rate=3e-3,
            use_cpu=not torch.cuda.is_available(),
            dataloader_pin_memory=torch.cuda.is_available(),
            save_strategy="no",
            report_to="none",
        )
        trainer = SharpnessAwareTrainer(
            model=BertForSequenceClassification(config),
            args=args,
            train_dataset=Pairs(1024, seed=1),
            eval_dataset=Pairs(256, seed=2),
            compute_metrics=accuracy,
            method="sampa",
            rho=0.05,
        )
        trainer.train()
        print(f"accuracy {100 * trainer.evaluate()['eval_accuracy']:.1f} %")


if __name__ == "__main__":
    main()
