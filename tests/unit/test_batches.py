"""Batches of any nesting: finding, mapping and splitting their tensors."""

from __future__ import annotations

from collections import OrderedDict, UserDict, deque
from dataclasses import dataclass
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from sampa.batches import tensors_in
from sampa.pieces.micro_batches import rows
from sampa.samples import batch_size, map_tensors, split
from tests.problems import same_bits


class Pair(NamedTuple):
    x: Tensor
    y: Tensor


X, Y = torch.arange(14.0).reshape(7, 2), torch.arange(7)


def test_tensors_are_found_in_any_nest_in_order() -> None:
    batch = {"a": [X, (Y, "text")], "b": 3, "c": Pair(Y, X)}
    assert [id(t) for t in tensors_in(batch)] == [id(t) for t in (X, Y, Y, X)]


def test_a_batch_without_tensors_has_none() -> None:
    assert list(tensors_in(["text", 1, None])) == []


@pytest.mark.parametrize("batch", [(X, Y), [X, Y], {"x": X, "y": Y}, Pair(X, Y), X])
def test_mapping_keeps_the_structure(batch: object) -> None:
    mapped = map_tensors(lambda t: t + 1, batch)
    assert type(mapped) is type(batch)
    assert same_bits(list(tensors_in(mapped)), [t + 1 for t in tensors_in(batch)])


def test_mapping_leaves_what_is_no_tensor_alone() -> None:
    assert map_tensors(lambda t: t + 1, ("text", 3, None)) == ("text", 3, None)


def test_mapping_an_ordered_dictionary_keeps_its_keys() -> None:
    mapped = map_tensors(lambda t: t + 1, OrderedDict(x=X))
    assert same_bits(dict(mapped), {"x": X + 1})


def test_batch_size_is_the_first_dimension() -> None:
    assert batch_size((X, Y, torch.tensor(3.0))) == 7


def test_batch_size_of_disagreeing_tensors_is_refused() -> None:
    with pytest.raises(ValueError, match=r"agree in their first dimension, got sizes \[3, 7\]"):
        batch_size((X, Y[:3]))


def test_batch_size_of_no_tensor_is_refused() -> None:
    with pytest.raises(ValueError, match=r"agree in their first dimension, got sizes \[\]"):
        batch_size(("text", torch.tensor(3.0)))


def test_one_part_is_the_batch_itself() -> None:
    batch = (X, Y)
    ((part, share),) = split(batch, 1)
    assert part is batch
    assert share == 1.0


@pytest.mark.parametrize("parts", [2, 3, 4, 7])
def test_parts_put_together_are_the_batch(parts: int) -> None:
    pieces = [piece for piece, _ in split((X, Y), parts)]
    assert len(pieces) == parts
    assert torch.equal(torch.cat([x for x, _ in pieces]), X)
    assert torch.equal(torch.cat([y for _, y in pieces]), Y)


@pytest.mark.parametrize("parts", [2, 3, 4, 7])
def test_a_parts_share_is_its_number_of_samples(parts: int) -> None:
    for (x, _), share in split((X, Y), parts):
        assert share == len(x) / 7


def test_parts_differ_by_one_sample_at_most() -> None:
    sizes = [len(x) for (x, _), _ in split((X, Y), 4)]
    assert max(sizes) - min(sizes) == 1


def test_a_scalar_goes_into_every_part() -> None:
    temperature = torch.tensor(2.0)
    assert all(piece["t"] is temperature for piece, _ in split({"x": X, "t": temperature}, 2))


@dataclass(frozen=True, slots=True)
class Labeled:
    x: Tensor
    names: tuple[str, ...]
    scale: float = 0.5


def test_parts_have_the_type_of_the_batch() -> None:
    names = tuple("abcdefg")
    for batch in (Labeled(X, names), SimpleNamespace(x=X, names=names), UserDict(x=X, names=names)):
        (first, _), (second, _) = split(batch, 2)
        assert type(first) is type(second) is type(batch)
        assert [len(next(tensors_in(part))) for part in (first, second)] == [3, 4]


def test_arrays_and_texts_are_cut_like_tensors() -> None:
    batch = {"x": X, "y": Y.numpy(), "names": list("abcdefg"), "classes": ["cat", "dog"], "n": 7}
    (first, _), (second, _) = split(batch, 2)
    assert np.array_equal(np.concatenate([first["y"], second["y"]]), Y.numpy())
    assert [first["names"], second["names"]] == [list("abc"), list("defg")]
    assert all((part["classes"], part["n"]) == (["cat", "dog"], 7) for part in (first, second))


def test_chosen_samples_are_the_same_in_tensors_arrays_and_texts() -> None:
    part = rows(torch.tensor([5, 0]))((X, Y.numpy(), tuple("abcdefg")))
    assert part[0].tolist() == X[[5, 0]].tolist()
    assert part[1].tolist() == [5, 0]
    assert part[2] == ("f", "a")


def test_an_array_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match=r"agree in their first dimension, got sizes \[2, 7\]"):
        split((X, np.zeros(2)), 2)


def test_tensors_that_cannot_be_cut_are_refused_by_the_type_they_are_in() -> None:
    around = SimpleNamespace(x=X)
    around.me = around
    for batch, name in ((deque([X]), "deque"), (around, "SimpleNamespace")):
        with pytest.raises(TypeError, match=f"got some in a {name}, which has a state of its own"):
            split(batch, 2)


def test_an_encoding_is_cut_into_encodings() -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    (first, _), _ = split(transformers.BatchEncoding({"input_ids": Y, "mask": X}), 2)
    assert type(first) is transformers.BatchEncoding
    assert first.input_ids.tolist() == [0, 1, 2]


def test_cutting_leaves_the_batch_as_it_is() -> None:
    batch = UserDict(x=X, y=[Y])
    split(batch, 2)
    assert batch["x"] is X
    assert batch["y"][0] is Y


def test_more_parts_than_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="7 samples cannot be cut into 8 micro-batches"):
        split((X, Y), 8)
