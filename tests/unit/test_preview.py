"""Peek: the base optimizer's next weights, with nothing of it changed."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

import sampa
from sampa.execution.lookahead import borrowed_state, lookahead, set_gradients, take_gradients
from sampa.vectors.vector import Vector
from tests.problems import BASES, cross_entropy_of, same_bits, tiny_mlp, vector_batches

STEPS_BEFORE = [0, 3]  # with lazily made state, and with state that exists


def gradients(model: nn.Module, seed: int) -> Vector:
    generator = torch.Generator().manual_seed(seed)
    return Vector(
        [torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in model.parameters()]
    )


def values(model: nn.Module) -> list[Tensor]:
    return [p.detach().clone() for p in model.parameters()]


def update(base: Optimizer, model: nn.Module, g: Vector) -> list[Tensor]:
    set_gradients(list(model.parameters()), g.clone())
    base.step()
    return values(model)


def peek(base: Optimizer, model: nn.Module, g: Vector) -> list[Tensor]:
    """The weights that a lookahead visits; the model is put back, as the evaluator does."""
    before = values(model)
    with torch.no_grad():
        lookahead(base, g)(list(model.parameters()))
        visited = values(model)
        for p, value in zip(model.parameters(), before, strict=True):
            p.copy_(value)
    return visited


def prepared(name: str, steps: int) -> tuple[nn.Module, Optimizer]:
    model = tiny_mlp()
    base = BASES[name](model.parameters())
    for i in range(steps):
        update(base, model, gradients(model, i))
    return model, base


class Counting(SGD):
    """An optimizer that keeps its state in its groups, as schedule-free methods do."""

    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            group["k"] = group.get("k", 0) + 1
            group["made_by_step"] = True
            group["lr"] *= 0.5
            group["history"].append(group["k"])
            group["total"] += 1  # a tensor, changed in place
        super().step(closure)


def counting(model: nn.Module) -> Counting:
    own: dict[str, Any] = {"history": [], "total": torch.zeros(1)}
    return Counting([{"params": list(model.parameters()), **own}], lr=0.1)


@pytest.mark.parametrize("steps", STEPS_BEFORE)
@pytest.mark.parametrize("name", BASES)
def test_state_is_unchanged_bit_for_bit_after_a_peek(name: str, steps: int) -> None:
    model, base = prepared(name, steps)
    before = copy.deepcopy(base.state_dict())
    peek(base, model, gradients(model, 9))
    assert same_bits(base.state_dict(), before)


@pytest.mark.parametrize("steps", STEPS_BEFORE)
@pytest.mark.parametrize("name", BASES)
def test_peek_then_update_gives_the_same_weights(name: str, steps: int) -> None:
    model, base = prepared(name, steps)
    g = gradients(model, 9)
    visited = peek(base, model, g)
    assert same_bits(update(base, model, g), visited)


@pytest.mark.parametrize("name", BASES)
def test_a_large_model_is_peeked_at_in_halves_bit_for_bit(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, base = prepared(name, 2)
    g, before = gradients(model, 9), copy.deepcopy(base.state_dict())
    whole = peek(base, model, g)
    monkeypatch.setattr("sampa.execution.lookahead.LARGE_MODEL", 0)
    assert same_bits(peek(base, model, g), whole)
    assert same_bits(base.state_dict(), before)


@pytest.mark.parametrize("name", BASES)
def test_peeking_twice_visits_the_same_weights(name: str) -> None:
    model, base = prepared(name, 2)
    g = gradients(model, 9)
    assert same_bits(peek(base, model, g), peek(base, model, g))


def test_state_made_by_a_peek_is_removed() -> None:
    model, base = prepared("adamw", 0)
    peek(base, model, gradients(model, 9))
    assert len(base.state) == 0


def test_state_tensors_keep_their_identity() -> None:
    model, base = prepared("adamw", 2)
    before = [id(v) for values in base.state.values() for v in values.values()]
    peek(base, model, gradients(model, 9))
    assert [id(v) for values in base.state.values() for v in values.values()] == before


@pytest.mark.parametrize("name", ["sgd-nesterov", "sgd-nesterov-foreach", "adamw"])
def test_peek_does_not_write_into_its_gradient(name: str) -> None:
    model, base = prepared(name, 2)
    g = gradients(model, 9)
    before = g.clone()
    peek(base, model, g)
    assert same_bits(list(g), list(before))


def test_peek_leaves_no_gradients_behind() -> None:
    model, base = prepared("adamw", 0)
    peek(base, model, gradients(model, 9))
    assert all(p.grad is None for p in model.parameters())


def test_a_parameter_without_gradient_stays_where_it_is() -> None:
    model, base = prepared("sgd-momentum", 2)
    before = values(model)
    g = Vector([None, *list(gradients(model, 9))[1:]])
    visited = peek(base, model, g)
    assert [torch.equal(a, b) for a, b in zip(visited, before, strict=True)] == [
        True,
        *[False] * 3,
    ]


def test_instance_step_hooks_do_not_fire() -> None:
    model, base = prepared("sgd", 0)
    calls: list[str] = []
    base.register_step_pre_hook(lambda *_: calls.append("pre"))
    base.register_step_post_hook(lambda *_: calls.append("post"))
    peek(base, model, gradients(model, 9))
    assert calls == []


def test_global_step_hooks_do_not_fire() -> None:
    model, base = prepared("sgd", 0)
    calls: list[str] = []
    handles = [
        register_optimizer_step_pre_hook(lambda *_: calls.append("pre")),
        register_optimizer_step_post_hook(lambda *_: calls.append("post")),
    ]
    try:
        peek(base, model, gradients(model, 9))
    finally:
        for handle in handles:
            handle.remove()
    assert calls == []


def test_hooks_of_a_step_that_calls_its_parents_do_not_fire() -> None:
    model = tiny_mlp()
    base = counting(model)
    calls: list[str] = []
    base.register_step_pre_hook(lambda *_: calls.append("own"))
    handle = register_optimizer_step_pre_hook(lambda *_: calls.append("global"))
    try:
        peek(base, model, gradients(model, 9))
    finally:
        handle.remove()
    assert calls == []


def test_hooks_fire_again_after_a_peek() -> None:
    model, base = prepared("sgd", 0)
    calls: list[str] = []
    base.register_step_pre_hook(lambda *_: calls.append("own"))
    peek(base, model, gradients(model, 9))
    update(base, model, gradients(model, 9))
    assert calls == ["own"]


def test_a_schedulers_count_of_steps_does_not_advance() -> None:
    model, base = prepared("sgd", 0)
    torch.optim.lr_scheduler.StepLR(base, 1)
    peek(base, model, gradients(model, 9))
    assert not getattr(base, "_opt_called", False)


def test_options_that_a_step_changes_are_put_back() -> None:
    model = tiny_mlp()
    base = counting(model)
    update(base, model, gradients(model, 0))
    del base.param_groups[0]["made_by_step"]
    before = copy.deepcopy(base.state_dict()["param_groups"])
    peek(base, model, gradients(model, 9))
    assert same_bits(base.state_dict()["param_groups"], before)


def test_peek_takes_the_options_of_the_group_into_account() -> None:
    model = tiny_mlp()
    base = counting(model)
    g = gradients(model, 9)
    visited = peek(base, model, g)
    assert same_bits(update(base, model, g), visited)


def test_state_of_a_parameter_that_was_replaced_does_no_harm() -> None:
    model = tiny_mlp()
    base = BASES["sgd-momentum"](model.parameters())
    optimizer = sampa.SAMPa(base, lam=0.2)
    for i, batch in enumerate(vector_batches(6)):
        if i == 2:
            model[0].bias = nn.Parameter(model.get_parameter("0.bias").detach().clone())
            base.param_groups[0]["params"][1] = model[0].bias
        optimizer.step(cross_entropy_of(model), batch)
    assert len(base.state) == 5


def test_state_is_put_back_when_the_step_fails() -> None:
    _, base = prepared("adamw", 2)
    before = copy.deepcopy(base.state_dict())

    def fail() -> None:
        with borrowed_state(base):
            base.state.clear()
            base.param_groups[0]["lr"] = 7.0
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert same_bits(base.state_dict(), before)


@pytest.mark.parametrize(("name", "factor"), [("sgd", 1.0), ("sgd-momentum", 1.0)])
def test_update_minus_peek_is_the_step_on_the_difference(name: str, factor: float) -> None:
    """Update(x, G) − Peek(x, g) = −η (G − g) for SGD, any momentum, any weight decay."""
    assert_difference(name, factor)


def test_update_minus_peek_has_the_nesterov_factor() -> None:
    """... and −η (1 + μ) (G − g) with Nesterov."""
    assert_difference("sgd-nesterov", 1.9)


def assert_difference(name: str, factor: float) -> None:
    model, base = prepared(name, 2)
    g, G = gradients(model, 8), gradients(model, 9)
    y, x = peek(base, model, g), update(base, model, G)
    for a, b, s, t in zip(x, y, G, g, strict=True):
        assert s is not None
        assert t is not None
        # Weights up to about 3, a handful of roundings: some units of 4e-16.
        torch.testing.assert_close(a - b, -0.1 * factor * (s - t), rtol=0, atol=5e-15)


def test_taking_gradients_takes_them_away() -> None:
    model = tiny_mlp()
    g = gradients(model, 0)
    set_gradients(list(model.parameters()), g)
    weights = list(model.parameters())
    taken = take_gradients(weights)
    assert same_bits([t for t in taken if t is not None], [t for t in g if t is not None])
    assert all(p.grad is None for p in model.parameters())
