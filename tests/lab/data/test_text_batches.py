"""Text batches: tokenized once, padded per batch, pure functions of (seed, epoch, number)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sampa.lab.data.glue import TextData
from sampa.lab.data.plans import Sequential, Shuffled
from sampa.lab.data.text_batches import (
    EncodedText,
    TextBatch,
    TextBatches,
    encode,
    load_tokenizer,
)

PAD = 99


def shuffled(data: EncodedText, batch_size: int, shard: int = 0, shards: int = 1) -> TextBatches:
    return TextBatches(data, Shuffled(np.arange(len(data)), batch_size, 0, shard, shards))


def in_order(data: EncodedText, batch_size: int, shard: int = 0, shards: int = 1) -> TextBatches:
    return TextBatches(data, Sequential(np.arange(len(data)), batch_size, shard, shards))


class Letters:
    """A tokenizer that makes a token of each letter, and counts how often it is called."""

    pad_token_id: Any = PAD

    def __init__(self, types: bool = True) -> None:
        self.types, self.calls = types, 0

    def __call__(
        self, text: list[str], text_pair: list[str] | None, *, truncation: bool, max_length: int
    ) -> Mapping[str, Any]:
        assert truncation
        self.calls += 1
        second = text_pair or [""] * len(text)
        pairs = list(zip(text, second, strict=True))
        ids = [[ord(c) for c in a + b][:max_length] for a, b in pairs]
        types = [([0] * len(a) + [1] * len(b))[:max_length] for a, b in pairs]
        return {"input_ids": ids, "token_type_ids": types} if self.types else {"input_ids": ids}


@pytest.fixture
def pairs() -> TextData:
    random = np.random.default_rng(0)
    first = tuple("a" * n for n in random.integers(1, 30, 50))
    second = tuple("b" * n for n in random.integers(1, 30, 50))
    return TextData(first, second, random.integers(0, 2, 50))


@pytest.fixture
def encoded(pairs: TextData) -> EncodedText:
    return encode(pairs, Letters(), max_length=40)


def same(a: TextBatch, b: TextBatch) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_a_batch_equals_plain_loops(pairs: TextData, encoded: EncodedText) -> None:
    batch = shuffled(encoded, 8).batch(0, 2)
    assert pairs.second is not None
    for row, i in enumerate(batch["index"].tolist()):
        a, b = pairs.first[i], pairs.second[i]
        tokens = [ord(c) for c in a + b][:40]
        types = [*[0] * len(a), *[1] * len(b)][:40]
        left = batch["input_ids"].shape[1] - len(tokens)
        assert batch["input_ids"][row].tolist() == tokens + [PAD] * left
        assert batch["attention_mask"][row].tolist() == [1] * len(tokens) + [0] * left
        assert batch["token_type_ids"][row].tolist() == types + [0] * left
        assert batch["labels"][row] == pairs.labels[i]


def test_a_batch_is_as_wide_as_its_longest_sample_needs(encoded: EncodedText) -> None:
    batches = shuffled(encoded, 2)
    for number in range(len(batches)):
        batch = batches.batch(0, number)
        longest = int(batch["attention_mask"].sum(1).max())
        assert batch["input_ids"].shape[1] == -(-longest // 8) * 8


def test_batches_differ_in_width(encoded: EncodedText) -> None:
    batches = shuffled(encoded, 2)
    assert len({batches.batch(0, n)["input_ids"].shape[1] for n in range(len(batches))}) > 1


def test_text_is_tokenized_once(pairs: TextData) -> None:
    letters = Letters()
    batches = shuffled(encode(pairs, letters), 8)
    for epoch in range(2):
        batches.batch(epoch, 0)
    assert letters.calls == 1


def test_random_access_equals_going_through(encoded: EncodedText) -> None:
    places = [(epoch, number) for epoch in range(2) for number in range(6)]
    through = {place: shuffled(encoded, 8).batch(*place) for place in places}
    for place in reversed(places):
        assert same(shuffled(encoded, 8).batch(*place), through[place])


@pytest.mark.parametrize("shards", [2, 4])
def test_the_union_of_the_shards_is_the_serial_batch(shards: int, encoded: EncodedText) -> None:
    parts = [shuffled(encoded, 8, s, shards).batch(1, 3) for s in range(shards)]
    union = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    assert same(union, shuffled(encoded, 8).batch(1, 3))


def test_evaluation_sees_every_sample_once(encoded: EncodedText) -> None:
    parts = [in_order(encoded, 8, shard, 3) for shard in range(3)]
    index = torch.cat([batch["index"] for part in parts for batch in part])
    assert sorted(index.tolist()) == list(range(50))


def test_only_the_given_samples_are_used(encoded: EncodedText) -> None:
    batches = TextBatches(encoded, Shuffled(np.arange(40, 50), 10, seed=0))
    assert sorted(batches.batch(0, 0)["index"].tolist()) == list(range(40, 50))


def test_single_sentences_are_of_type_zero() -> None:
    data = TextData(("one", "three"), None, np.zeros(2, np.int64))
    batch = in_order(encode(data, Letters()), 2).batch(0, 0)
    assert not batch["token_type_ids"].any()


def test_a_tokenizer_without_types_gives_zeros(pairs: TextData) -> None:
    batch = in_order(encode(pairs, Letters(types=False)), 8).batch(0, 0)
    assert not batch["token_type_ids"].any()


def test_scores_stay_floats() -> None:
    data = TextData(("a", "b"), None, np.array([0.5, 4.8], np.float32))
    batch = in_order(encode(data, Letters()), 2).batch(0, 0)
    assert torch.equal(batch["labels"], torch.tensor([0.5, 4.8]))


@pytest.mark.parametrize("max_length", [0, -8, 100])
def test_a_length_that_is_no_multiple_of_8_is_refused(max_length: int, pairs: TextData) -> None:
    with pytest.raises(ValueError, match="max_length must be a positive multiple of 8"):
        encode(pairs, Letters(), max_length)


def test_a_tokenizer_of_transformers_is_loaded_from_a_folder(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="needs the extra nlp")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "film", "bad"]
    made = transformers.BertTokenizerFast(vocab={word: i for i, word in enumerate(words)})
    made.save_pretrained(tmp_path)
    data = TextData(("Good film", "bad"), ("film", "good film"), np.array([1, 0]))
    batch = in_order(encode(data, load_tokenizer(tmp_path)), 2).batch(0, 0)
    assert batch["input_ids"].tolist() == [[2, 5, 6, 3, 6, 3, 0, 0], [2, 7, 3, 5, 6, 3, 0, 0]]
    assert batch["token_type_ids"].tolist() == [
        [0] * 4 + [1] * 2 + [0] * 2,
        [0, 0, 0, 1, 1, 1, 0, 0],
    ]
    assert batch["attention_mask"].tolist() == [[1] * 6 + [0] * 2] * 2


def test_a_missing_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="absent does not exist; it must hold the files"):
        load_tokenizer(tmp_path / "absent")
