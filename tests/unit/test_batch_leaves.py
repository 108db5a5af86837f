"""The mark of a batch depends on every leaf of it and on its structure, alike in all processes."""

from __future__ import annotations

import copy
import enum
import fractions
import os
import subprocess
import sys
import threading
import warnings
import weakref
from collections import OrderedDict, UserDict, deque, namedtuple
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from sampa.batches import tensors_in, walk
from sampa.execution.parallel import agreement
from sampa.execution.parallel.agreement import BatchMark

Pair = namedtuple("Pair", "x y")


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@dataclass
class Samples:
    x: Any
    names: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Frozen:
    x: Any


class Slotted:
    __slots__ = ("x", "y")

    def __init__(self, x: Any) -> None:
        self.x = x


class Store:
    """As a graph's storage in PyG: it knows its graph, and says what to pickle."""

    def __init__(self, parent: Any, **values: Any) -> None:
        self.values = values
        self.parent = weakref.ref(parent)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "parent": self.parent()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({**state, "parent": weakref.ref(state["parent"])})


class Graph:
    """As PyG's Data."""

    def __init__(self, **values: Any) -> None:
        self.store = Store(self, **values)


class Itself:
    """Refers to itself."""

    def __init__(self, x: Any) -> None:
        self.x = x
        self.me = self
        self.list = [self, self]


class Squared:
    """Remembers what was asked for."""

    def __init__(self, x: float) -> None:
        self.x = x

    @cached_property
    def square(self) -> float:
        return self.x**2


def mark(batch: Any) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return BatchMark(walk(batch)).value(torch.zeros(())).item()


def objects(*values: Any) -> np.ndarray:
    array = np.empty(len(values), dtype=object)
    array[:] = [*values]
    return array


def floats(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float32)


def encoded(*ids: int) -> Any:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    data = {"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, len(ids))}
    return transformers.BatchEncoding(data)


def compressed(t: Tensor, by: str) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, about a beta state
        return t.view(1, 3).to_sparse_csr() if by == "rows" else t.view(1, 3).to_sparse_csc()


def jagged(*lengths: int) -> Tensor:
    return torch.nested.nested_tensor([torch.ones(n) for n in lengths], layout=torch.jagged)


A, B = floats(1, 0, 2), floats(1, 0, 3)
DIFFERENT: dict[str, tuple[Any, Any]] = {
    "text": (["a cat", "a dog"], ["a cat", "a cow"]),
    "order of texts": (["a", "b"], ["b", "a"]),
    "where texts end": (["ab", "c"], ["a", "bc"]),
    "bytes": (b"ab", b"ac"),
    "bytes and text": (b"ab", "ab"),
    "bytearray": (bytearray(b"ab"), bytearray(b"ac")),
    "memory": (memoryview(b"ab"), memoryview(b"ac")),
    "indices": ([3, 1, 2], [3, 2, 1]),
    "large integers": (2**200, 2**200 + 1),
    "types of numbers": ([1, 0], [True, False]),
    "an integer and a float": (1, 1.0),
    "signs of zero": (0.0, -0.0),
    "NaN and a number": (float("nan"), 0.0),
    "complex numbers": (1 + 2j, 1 - 2j),
    "none": ((None, 1), (1, None)),
    "arrays": (np.arange(6), np.arange(6)[::-1]),
    "signs of zero in an array": (np.array([0.0]), np.array([-0.0])),
    "types of arrays": (np.zeros(2, np.float32), np.zeros(2, np.int32)),
    "shapes of arrays": (np.zeros((2, 3)), np.zeros((3, 2))),
    "strided arrays": (np.arange(6)[::2], np.arange(6)[1::2]),
    "arrays of text": (np.array(["a", "b"]), np.array(["a", "c"])),
    "masks of arrays": (
        np.ma.array([1, 2], mask=[False] * 2),
        np.ma.array([1, 2], mask=[True] * 2),
    ),
    "arrays of dates": (np.array(["2020-01-01"], "M8[D]"), np.array(["2020-01-02"], "M8[D]")),
    "arrays of objects": (objects("a", A), objects("a", B)),
    "numbers of NumPy": (np.float32(1), np.float32(2)),
    "tensors in a dataclass": (Samples(A), Samples(B)),
    "text in a dataclass": (Samples(A, ["a"]), Samples(A, ["b"])),
    "a frozen dataclass": (Frozen(A), Frozen(B)),
    "slots": (Slotted(A), Slotted(B)),
    "attributes": (SimpleNamespace(x=A), SimpleNamespace(x=B)),
    "names of attributes": (SimpleNamespace(x=A), SimpleNamespace(y=A)),
    "a graph": (Graph(x=A), Graph(x=B)),
    "an object that refers to itself": (Itself(A), Itself(B)),
    "a named tuple": (Pair(A, B), Pair(B, A)),
    "a named tuple and a tuple": (Pair(A, B), (A, B)),
    "keys": ({"x": A}, {"y": A}),
    "keys that are no strings": ({Color.RED: A}, {Color.BLUE: A}),
    "an entry more": ({"x": A}, {"x": A, "y": None}),
    "mappings of a user": (UserDict(x=A), UserDict(x=B)),
    "sets": ({"a", "b"}, {"a", "c"}),
    "queues": (deque([A]), deque([B])),
    "enums": (Color.RED, Color.BLUE),
    "decimals": (Decimal("1.0"), Decimal("1.1")),
    "fractions": (fractions.Fraction(1, 2), fractions.Fraction(1, 3)),
    "paths": (PurePosixPath("a"), PurePosixPath("b")),
    "ranges": (range(3), range(4)),
    "functions": (len, max),
    "types": (int, float),
    "sparse tensors": (A.to_sparse(), B.to_sparse()),
    "places in a sparse tensor": (A.to_sparse(), floats(1, 2, 0).to_sparse()),
    "sizes of a sparse tensor": (A.to_sparse(), floats(1, 0, 2, 0).to_sparse()),
    "rows in compressed form": (compressed(A, "rows"), compressed(B, "rows")),
    "columns in compressed form": (compressed(A, "columns"), compressed(B, "columns")),
    "layouts": (A, A.to_sparse()),
    "ragged tensors": (jagged(2, 3), jagged(3, 2)),
    "types of tensors": (torch.zeros(2), torch.zeros(2, dtype=torch.int32)),
    "shapes of tensors": (torch.zeros(2, 3), torch.zeros(3, 2)),
    "tensors that changed places": ((A, B), (B, A)),
    "how deep": ((A, (B,)), (A, B)),
}


@pytest.mark.parametrize("kind", DIFFERENT)
def test_batches_that_differ_have_different_marks(kind: str) -> None:
    a, b = DIFFERENT[kind]
    assert mark(a) != mark(b)
    assert mark({"x": [a]}) != mark({"x": [b]})


@pytest.mark.parametrize("kind", sorted(DIFFERENT.keys() - {"memory"}))
def test_a_copy_has_the_same_mark(kind: str) -> None:
    for batch in DIFFERENT[kind]:
        copied = batch.clone() if isinstance(batch, Tensor) else copy.deepcopy(batch)
        assert mark(copied) == mark(batch)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ({"x": A, "y": B}, {"y": B, "x": A}),
        (OrderedDict(x=A, y=B), OrderedDict(y=B, x=A)),
        ({"a", "b", "c"}, {"c", "b", "a"}),
        (torch.device("cpu"), torch.device("cpu", 0)),
        (floats(1, 2, 3, 4)[::2], floats(1, 3)),
        (np.arange(4)[::2], np.array([0, 2])),
    ],
)
def test_what_makes_no_difference_is_not_marked(a: Any, b: Any) -> None:
    assert mark(a) == mark(b)


def test_a_value_that_follows_from_others_does_not_count() -> None:
    asked, not_asked = Squared(2.0), Squared(2.0)
    assert asked.square == 4.0
    assert mark(asked) == mark(not_asked)


def test_all_tensors_are_found() -> None:
    for batch in (Samples(A), Slotted(A), Graph(x=A), Itself(A), deque([A]), objects(A)):
        assert [t is A for t in tensors_in(batch)] == [True]


def test_an_encoding_is_what_its_tensors_are() -> None:
    assert [tuple(t.shape) for t in tensors_in(encoded(1, 2))] == [(1, 2), (1, 2)]
    assert mark(encoded(1, 2)) == mark(encoded(1, 2)) != mark(encoded(2, 1))


def all_marks() -> list[float]:
    return [mark(batch) for pair in DIFFERENT.values() for batch in pair]


@pytest.mark.slow
def test_marks_are_the_same_in_a_process_with_other_hashes() -> None:
    """Python draws the hashes of strings at random, and with them the order of sets."""
    code = "from tests.unit import test_batch_leaves as t; print(t.all_marks())"
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": str(1 + hash("a") % 1000)},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == str(all_marks())


def test_what_cannot_be_marked_is_said_once(recwarn: pytest.WarningsRecorder) -> None:
    agreement._warn_of.cache_clear()
    batch = {"x": A, "lock": threading.Lock(), "generator": (n for n in range(3))}
    found = {BatchMark(walk(batch)).value(torch.zeros(())).item() for _ in range(3)}
    said = [str(w.message) for w in recwarn]
    assert len(found) == 1
    assert len(said) == 2
    assert all("cannot be compared between ranks" in s and "yield what it" in s for s in said)
    assert ["generator" in s for s in said] == [True, False]
    assert Path(recwarn[0].filename) == Path(__file__)
