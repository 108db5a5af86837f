"""What trainers and users rely on: a torch optimizer whose groups and state are the base's."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

import sampa
from tests.problems import (
    METHODS,
    cross_entropy_of,
    flat,
    same_bits,
    sgd,
    tiny_mlp,
    trajectory,
    vector_batches,
)

BATCHES = vector_batches(8)


def built(name: str, **options: Any) -> tuple[nn.Module, sampa.SharpnessAware]:
    model = tiny_mlp()
    return model, METHODS[name](sgd(model), **options)


def steps(model: nn.Module, optimizer: sampa.SharpnessAware, first: int, last: int) -> None:
    trajectory(optimizer, model, BATCHES[first:last], cross_entropy_of(model))


@pytest.mark.parametrize("options", [{"lam": 1.0}, {"bootstrap": "script"}], ids=str)
def test_gradients_that_are_zeroed_after_a_step_belong_to_no_state(options: dict[str, Any]) -> None:
    """With these the gradient of the update is the one that SAMPa's state holds."""
    found: list[torch.Tensor] = []
    for set_to_none in (True, False):
        model = tiny_mlp()
        optimizer = sampa.SAMPa(sgd(model), **options)
        for batch in BATCHES[:4]:
            optimizer.step(cross_entropy_of(model), batch)
            optimizer.zero_grad(set_to_none=set_to_none)
        found.append(flat(model))
    assert same_bits(*found)


# ---- groups and state are the base's -------------------------------------------------------------


def test_a_method_is_a_torch_optimizer() -> None:
    assert isinstance(built("sampa-0.2")[1], Optimizer)


def test_groups_are_the_bases_own_list() -> None:
    _, optimizer = built("sampa-0.2")
    assert optimizer.param_groups is optimizer.base.param_groups


def test_state_is_the_bases_own() -> None:
    model, optimizer = built("sampa-0.2")
    steps(model, optimizer, 0, 3)
    assert optimizer.state is optimizer.base.state
    assert len(optimizer.state) == 4


def test_defaults_are_the_bases() -> None:
    """OneCycleLR looks for momentum there."""
    _, optimizer = built("sampa-0.2")
    assert optimizer.defaults["momentum"] == 0.9


def test_groups_stay_shared_after_loading_into_the_wrapper() -> None:
    model, optimizer = built("sampa-0.2")
    steps(model, optimizer, 0, 3)
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert optimizer.param_groups is optimizer.base.param_groups
    assert optimizer.state is optimizer.base.state


def test_groups_stay_shared_after_loading_into_the_base() -> None:
    model, optimizer = built("sampa-0.2")
    steps(model, optimizer, 0, 3)
    optimizer.base.load_state_dict(copy.deepcopy(optimizer.base.state_dict()))
    assert optimizer.param_groups is optimizer.base.param_groups
    assert optimizer.state is optimizer.base.state


def test_a_learning_rate_set_on_the_wrapper_is_used() -> None:
    model, optimizer = built("sam")
    before = flat(model)
    optimizer.param_groups[0]["lr"] = 0.0
    steps(model, optimizer, 0, 2)
    assert torch.equal(flat(model), before)


def test_zero_grad_clears_the_gradients() -> None:
    model, optimizer = built("sam")
    steps(model, optimizer, 0, 1)
    optimizer.zero_grad()
    assert all(p.grad is None for p in model.parameters())


def test_zero_grad_may_keep_the_tensors() -> None:
    model, optimizer = built("sam")
    steps(model, optimizer, 0, 1)
    optimizer.zero_grad(set_to_none=False)
    assert all(p.grad is not None and not p.grad.any() for p in model.parameters())


def test_gradients_left_by_the_user_do_not_count() -> None:
    model, optimizer = built("sam")
    twin, other = built("sam")
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    steps(model, optimizer, 0, 1)
    steps(twin, other, 0, 1)
    assert torch.equal(flat(model), flat(twin))


def test_a_group_added_before_training_is_trained() -> None:
    model = tiny_mlp()
    optimizer = sampa.SAMPa(torch.optim.SGD(model[0].parameters(), lr=0.1))
    optimizer.add_param_group({"params": list(model[2].parameters()), "lr": 0.2})
    before = [p.detach().clone() for p in model.parameters()]
    steps(model, optimizer, 0, 2)
    assert not any(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))


# ---- hooks, copies -------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_step_hooks_of_the_wrapper_fire_once_a_call(method: str) -> None:
    model, optimizer = built(method)
    calls: list[str] = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("pre"))
    optimizer.register_step_post_hook(lambda *_: calls.append("post"))
    steps(model, optimizer, 0, 3)
    assert calls == ["pre", "post"] * 3


@pytest.mark.parametrize("method", METHODS)
def test_step_hooks_of_the_base_fire_once_an_update(method: str) -> None:
    model, optimizer = built(method)
    calls: list[str] = []
    optimizer.base.register_step_post_hook(lambda *_: calls.append("base"))
    updates = len(trajectory(optimizer, model, BATCHES, cross_entropy_of(model)))
    assert len(calls) == updates


def test_global_step_hooks_fire_once_for_the_base_and_once_for_the_wrapper() -> None:
    model, optimizer = built("sampa-0.2")
    steps(model, optimizer, 0, 1)
    seen: list[object] = []
    handle = register_optimizer_step_post_hook(lambda o, *_: seen.append(o))
    try:
        steps(model, optimizer, 1, 2)
    finally:
        handle.remove()
    assert seen == [optimizer.base, optimizer]


def by_pickle(pair: Any) -> Any:
    return pickle.loads(pickle.dumps(pair))


@pytest.mark.parametrize("copied", [copy.deepcopy, by_pickle])
@pytest.mark.parametrize("method", METHODS)
def test_a_copy_goes_on_bit_for_bit(method: str, copied: Callable[[Any], Any]) -> None:
    model, optimizer = built(method)
    steps(model, optimizer, 0, 4)
    twin, other = copied((model, optimizer))
    steps(model, optimizer, 4, 8)
    steps(twin, other, 4, 8)
    assert torch.equal(flat(model), flat(twin))
    assert same_bits(optimizer.base.state_dict(), other.base.state_dict())


def test_a_copy_keeps_a_base_of_its_own() -> None:
    model, optimizer = built("sampa-0.2")
    steps(model, optimizer, 0, 3)
    twin, other = copy.deepcopy((model, optimizer))
    assert other.base is not optimizer.base
    assert other.param_groups is other.base.param_groups
    assert other.param_groups[0]["params"][0] is twin.get_parameter("0.weight")


def test_training_a_copy_leaves_the_original_alone() -> None:
    model, optimizer = built("sampa-0.2")
    steps(model, optimizer, 0, 3)
    before, state = flat(model), copy.deepcopy(optimizer.state_dict())
    twin, other = copy.deepcopy((model, optimizer))
    steps(twin, other, 3, 6)
    assert torch.equal(flat(model), before)
    assert same_bits(optimizer.state_dict(), state)


def test_repr_names_method_and_base() -> None:
    assert "SAMPa" in repr(built("sampa-0.2")[1])
    assert "SGD" in repr(built("sampa-0.2")[1])
