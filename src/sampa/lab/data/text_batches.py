"""Batches of text, each a pure function of (seed, epoch, number)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from sampa.lab.data.glue import TextData
from sampa.lab.data.plans import BatchPlan, require_indices
from sampa.messages import require

MAX_LENGTH = 128  # tokens, as for BERT on GLUE
MULTIPLE = 8  # batches are padded to a multiple of this, which suits the hardware

TextBatch = dict[str, Tensor]
"""input_ids, attention_mask, token_type_ids, labels and index."""


class Tokenizer(Protocol):
    """What is used of a tokenizer of transformers."""

    @property
    def pad_token_id(self) -> Any: ...

    def __call__(
        self, text: Any, text_pair: Any, *, truncation: bool, max_length: int
    ) -> Mapping[str, Any]: ...


def load_tokenizer(path: str | Path) -> Tokenizer:
    """A tokenizer from a local folder; nothing is downloaded.

    Raises:
        FileNotFoundError: If there is no such folder.
    """
    if not Path(path).is_dir():
        raise FileNotFoundError(
            f"the tokenizer's folder {path} does not exist; it must hold the files of a "
            "transformers tokenizer (tokenizer.json, tokenizer_config.json)"
        )
    from transformers import AutoTokenizer  # slow to import

    return AutoTokenizer.from_pretrained(path, local_files_only=True, use_fast=True)


@dataclass(frozen=True)
class EncodedText:
    """Tokenized text: all samples one after the other.

    Attributes:
        ids: int64, the tokens.
        types: int64, which sentence of the pair each token is from.
        starts: int64, where each sample starts in them, and where the last one ends.
        labels: One per sample.
        pad_id: The token that fills up short samples.
    """

    ids: np.ndarray
    types: np.ndarray
    starts: np.ndarray
    labels: np.ndarray
    pad_id: int

    def __len__(self) -> int:
        return len(self.labels)

    def lengths(self, index: np.ndarray) -> np.ndarray:
        return self.starts[index + 1] - self.starts[index]


def encode(data: TextData, tokenizer: Tokenizer, max_length: int = MAX_LENGTH) -> EncodedText:
    """Tokenize a whole data set, once.

    Args:
        data: Sentences or pairs.
        tokenizer: Of transformers, or one that is called alike.
        max_length: Tokens after which text is cut; a multiple of 8.
    """
    fits = max_length > 0 and max_length % MULTIPLE == 0
    require("max_length", max_length, fits, f"a positive multiple of {MULTIPLE}")
    second = None if data.second is None else list(data.second)
    found = tokenizer(list(data.first), second, truncation=True, max_length=max_length)
    ids: Sequence[Sequence[int]] = found["input_ids"]
    lengths = np.asarray([len(sample) for sample in ids], np.int64)
    flat = np.fromiter(chain.from_iterable(ids), np.int64)
    types = np.zeros_like(flat)
    if "token_type_ids" in found:
        types = np.fromiter(chain.from_iterable(found["token_type_ids"]), np.int64)
    starts = np.concatenate([np.zeros(1, np.int64), lengths.cumsum()])
    return EncodedText(flat, types, starts, data.labels, int(tokenizer.pad_token_id or 0))


@dataclass(frozen=True)
class TextBatches:
    """Batches of text in the order of a plan, all samples as long as the longest of the batch.

    Attributes:
        data: Tokenized text.
        plan: Which samples make up which batch, and which part of it is ours. The other parts are
            padded to the same length.
    """

    data: EncodedText
    plan: BatchPlan

    def __post_init__(self) -> None:
        require_indices(self.plan.indices, len(self.data))

    def __len__(self) -> int:
        return len(self.plan)

    def batch(self, epoch: int, number: int) -> TextBatch:
        """This shard's part of a batch of an epoch."""
        longest = int(self.data.lengths(self.plan.whole(epoch, number)).max())
        width = -(-longest // MULTIPLE) * MULTIPLE
        return padded(self.data, self.plan.part(epoch, number), width)

    def __iter__(self) -> Iterator[TextBatch]:
        """The first epoch."""
        return (self.batch(0, number) for number in range(len(self)))


def padded(data: EncodedText, index: np.ndarray, width: int) -> TextBatch:
    """These samples as rows of one width; what is no token has no attention."""
    places = np.arange(width)
    is_token = places < data.lengths(index)[:, None]
    sources = (data.starts[index][:, None] + places)[is_token]
    ids = np.full(is_token.shape, data.pad_id, np.int64)
    types = np.zeros(is_token.shape, np.int64)
    ids[is_token], types[is_token] = data.ids[sources], data.types[sources]
    return {
        "input_ids": torch.from_numpy(ids),
        "attention_mask": torch.from_numpy(is_token.astype(np.int64)),
        "token_type_ids": torch.from_numpy(types),
        "labels": torch.from_numpy(data.labels[index]),
        "index": torch.from_numpy(index.copy()),
    }
