"""Nested states taken apart into named tensors and JSON, and put together again."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load, save
from torch import Tensor

from sampa.lab.training.trees import flatten, unflatten

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.bool)

tensors = st.builds(
    lambda seed, shape, dtype: (10 * torch.randn(shape, generator=_generator(seed))).to(dtype),
    st.integers(0, 9),
    st.lists(st.integers(0, 3), max_size=3).map(tuple),
    st.sampled_from(DTYPES),
)
numbers = st.booleans() | st.integers() | st.floats(allow_nan=False)
leaves = st.none() | numbers | st.text(max_size=5) | tensors
keys = st.sampled_from(["a", "b", "a.b", "", "0", "$dict", "$tensor"]) | st.integers(0, 3)
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(keys, inner, max_size=4)
    ),
    max_leaves=12,
)


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def same(a: Any, b: Any) -> bool:
    """Equal in structure, types and bits."""
    if type(a) is not type(b):
        return False
    if isinstance(a, Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


@given(tree=trees)
def test_a_tree_survives_json_and_safetensors(tree: Any) -> None:
    skeleton, named = flatten(tree)
    assert same(unflatten(json.loads(json.dumps(skeleton)), load(save(named))), tree)


def test_keys_whose_paths_coincide_keep_their_tensors() -> None:
    tree = {"a": {"b": torch.tensor(1)}, "a.b": torch.tensor(2), 0: torch.tensor(3), "0": (4,)}
    assert same(unflatten(*flatten(tree)), tree)


def test_a_view_is_stored_without_the_buffer_it_looks_into() -> None:
    _, named = flatten(torch.arange(100)[10:12])
    (stored,) = named.values()
    assert stored.untyped_storage().nbytes() == 2 * 8


def test_numbers_that_json_has_no_word_for_survive() -> None:
    skeleton, _ = flatten([float("nan"), float("inf"), -0.0])
    nan, inf, zero = unflatten(json.loads(json.dumps(skeleton)), {})
    assert nan != nan
    assert inf == float("inf")
    assert str(zero) == "-0.0"


def test_an_object_is_refused_with_its_place() -> None:
    with pytest.raises(TypeError, match=r"\.state\.0 must be made of tensors, numbers and text"):
        flatten({"state": [object()]})


@pytest.mark.parametrize(
    "skeleton",
    [{"$tensor": "absent"}, {"$code": "print()"}, {"$dict": [], "$tuple": []}, {"$dict": [[1]]}],
)
def test_a_skeleton_that_flatten_does_not_make_is_refused(skeleton: Any) -> None:
    with pytest.raises(ValueError, match=r"a node must|not enough values"):
        unflatten(skeleton, {})
