"""A small BERT from its configuration, and sentences of random words to train it on."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from tests.lazy import Lazy

transformers = Lazy("transformers")


class Sentences(Dataset[dict[str, Tensor]]):
    """Sentences with a label each, as the Trainer likes them."""

    def __init__(self, count: int = 20, length: int = 6) -> None:
        generator = torch.Generator().manual_seed(1)
        self.words = torch.randint(1, 50, (count, length), generator=generator)
        self.labels = (self.words[:, 0] > self.words[:, 1]).long()

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"input_ids": self.words[index], "labels": self.labels[index]}


class Tags(Sentences):
    """A tag for each word; those of the last words of most sentences are missing."""

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        tags = (self.words[index] > 25).long()
        tags[1 + index % 5 :] = -100
        return {"input_ids": self.words[index], "labels": tags}


SIZES: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "vocab_size": 50,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 16,
}


def small_bert() -> Any:
    torch.manual_seed(0)
    return transformers.BertForSequenceClassification(transformers.BertConfig(**SIZES))


def small_tagger() -> Any:
    """Without dropout, which draws anew for each part of a batch."""
    torch.manual_seed(0)
    still: dict[str, Any] = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return transformers.BertForTokenClassification(transformers.BertConfig(**SIZES, **still))
