"""What is said to those who write as other libraries want it, or misspell a name."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch

import sampa
from tests.problems import sgd, tiny_mlp


@pytest.mark.parametrize("make", [sampa.SAM, sampa.ASAM, sampa.SAMPa])
@pytest.mark.parametrize("kind", [iter, list])
def test_parameters_and_a_class_in_place_of_the_base_are_refused(make: Any, kind: Any) -> None:
    """The form of davda54/sam and pytorch_optimizer."""
    message = r"base must be a torch optimizer, got \w+; build it first.*sampa\.SAM\(torch\.optim"
    with pytest.raises(TypeError, match=message):
        make(kind(tiny_mlp().parameters()), torch.optim.SGD, lr=0.1, momentum=0.9)


@pytest.mark.parametrize("name", ["first_step", "second_step"])
def test_the_halves_of_a_step_name_the_whole(name: str) -> None:
    optimizer: Any = sampa.SAM(sgd(tiny_mlp()))
    with pytest.raises(AttributeError, match=rf"(?s){name}.*optimizer\.step\(loss_fn, batch\)"):
        getattr(optimizer, name)(zero_grad=True)
    assert not hasattr(optimizer, name)
    assert not hasattr(optimizer, "nothing_of_the_kind")
    copy.deepcopy(optimizer)
    pickle.loads(pickle.dumps(optimizer))


@pytest.mark.parametrize(
    ("make", "wrong", "right"),
    [
        (sampa.SAMPa, "lamda", "lam"),
        (sampa.SAMPa, "bootstrp", "bootstrap"),
        (sampa.GSAM, "alhpa", "alpha"),
        (sampa.SparseSAM, "sparcity", "sparsity"),
        (sampa.SAM, "geometri", "geometry"),
        (sampa.SAM, "max_nrom", "max_norm"),
    ],
)
def test_a_misspelled_keyword_names_the_methods_own(make: Any, wrong: str, right: str) -> None:
    message = rf"{wrong} is not a hyper-parameter of this method .*did you mean {right}=\?"
    with pytest.raises(TypeError, match=message):
        make(sgd(tiny_mlp()), **{wrong: 0.1})


def test_a_missing_method_names_the_nearest() -> None:
    with pytest.raises(KeyError, match=r"got 'samp'; did you mean 'sampa'"):
        sampa.METHODS["samp"]
    assert sampa.METHODS.get("samp") is None
    assert "samp" not in sampa.METHODS
