"""`step(closure)` in torch's convention, and `sampa.Closure` for frameworks."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

import sampa
from tests.problems import (
    cross_entropy_of,
    flat,
    same_bits,
    sgd,
    small_net,
    through_a_file,
    tiny_mlp,
    vector_batches,
)
from tests.variants import ACTIVE, PLAN, Sample, build, loss_of, net

HOLDING = {"sam-db", *(name for name in ACTIVE if name.startswith("sampa"))}
NEEDING_MORE = {
    *("bisam", "esam", "msam", "saf", "mesa", "ssam-f", "async-sam"),
    *("sampa+bisam", "sampa+msam"),
}
BATCH = vector_batches(1)[0]
Call = Callable[[sampa.SharpnessAware, nn.Module, Any], Tensor]


def backward(model: nn.Module, batch: Sample, *, divided_by: int = 1) -> Tensor:
    """What frameworks do: forward and backward, and the loss without its graph."""
    loss = loss_of(model)(batch).value
    assert loss is not None
    loss = loss / divided_by
    loss.backward()
    return loss.detach()


def by_loss_fn(optimizer: sampa.SharpnessAware, model: nn.Module, batch: Sample) -> Tensor:
    return optimizer.step(loss_of(model), batch)


def by_closure(optimizer: sampa.SharpnessAware, model: nn.Module, batch: Sample) -> Tensor:
    return optimizer.step(closure_of(optimizer, model, batch))


def by_named_closure(optimizer: sampa.SharpnessAware, model: nn.Module, batch: Sample) -> Tensor:
    return optimizer.step(closure=closure_of(optimizer, model, batch))


def closure_of(
    optimizer: sampa.SharpnessAware, model: nn.Module, batch: Sample
) -> Callable[[], Tensor]:
    def closure() -> Tensor:
        optimizer.zero_grad()
        return backward(model, batch)

    return closure


def by_bound_closure(optimizer: sampa.SharpnessAware, model: nn.Module, batch: Sample) -> Tensor:
    return optimizer.step(sampa.Closure(partial(backward, model)), batch)


def outcome(name: str, call: Call, **options: Any) -> tuple[Any, ...]:
    """All that a run leaves behind: BatchNorm, dropout, clipping and three epochs take part."""
    model = net()
    optimizer = build(name, model, max_norm=0.5, **options)
    losses, records = [], []
    for epoch, batch in PLAN:
        optimizer.set_epoch(epoch)
        losses.append(call(optimizer, model, batch))
        records.append(optimizer.last)
    return model.state_dict(), optimizer.state_dict(), losses, records


@pytest.mark.parametrize("name", sorted({*ACTIVE} - HOLDING - NEEDING_MORE))
def test_a_closure_gives_the_bits_of_loss_fn(name: str) -> None:
    by_a_closure = by_named_closure if name == "sam" else by_closure
    assert same_bits(outcome(name, by_a_closure), outcome(name, by_loss_fn))


@pytest.mark.parametrize("name", sorted({*ACTIVE} - NEEDING_MORE))
def test_a_bound_closure_gives_the_bits_of_loss_fn(name: str) -> None:
    assert same_bits(outcome(name, by_bound_closure), outcome(name, by_loss_fn))


@pytest.mark.parametrize("name", sorted(HOLDING | NEEDING_MORE))
def test_methods_that_need_more_than_one_batch_or_another_loss_refuse_a_closure(name: str) -> None:
    model = net()
    optimizer, before = build(name, model), flat(model)
    message = r"(?s)step cannot take a closure here: \w+Method .*optimizer\.step\(loss_fn, batch\)"
    with pytest.raises(RuntimeError, match=message):
        by_closure(optimizer, model, PLAN[0][1])
    if name in NEEDING_MORE:
        with pytest.raises(RuntimeError, match=message):
            by_bound_closure(optimizer, model, PLAN[0][1])
    assert torch.equal(flat(model), before)
    assert optimizer.last is None
    by_loss_fn(optimizer, model, PLAN[0][1])


def half(model: nn.Module, batch: Sample) -> Tensor:
    """A loss that is one of two which add up."""
    loss = loss_of(model)(batch).value
    assert loss is not None
    return loss / 2


def closed_half(model: nn.Module) -> sampa.Closure:
    return sampa.Closure(partial(backward, model, divided_by=2))


def in_halves(batch: Sample) -> list[list[Tensor]]:
    return [[t[:3] for t in batch], [t[3:] for t in batch]]


@pytest.mark.parametrize("function_of", [lambda model: partial(half, model), closed_half])
def test_a_batch_in_parts_is_one_of_micro_batches(function_of: Callable[[nn.Module], Any]) -> None:
    def by_parts(optimizer: sampa.SharpnessAware, model: nn.Module, batch: Sample) -> Tensor:
        return optimizer.step(function_of(model), in_halves(batch), in_parts=True)

    *kept, losses, records = outcome("sampa", by_parts)
    *others, expected, expected_records = outcome("sampa", by_loss_fn, accumulate=2)
    assert same_bits([losses, records, kept[0]], [expected, expected_records, others[0]])


@pytest.mark.parametrize("name", sorted(NEEDING_MORE))
def test_one_part_is_a_whole_batch_and_several_are_refused_where_that_is_needed(name: str) -> None:
    model = net()
    optimizer, (epoch, batch) = build(name, model), PLAN[0]
    optimizer.set_epoch(epoch)
    optimizer.step(loss_of(model), [batch], in_parts=True)

    def go_on() -> None:
        for epoch, batch in PLAN:
            optimizer.set_epoch(epoch)
            optimizer.step(loss_of(model), in_halves(batch), in_parts=True)

    with pytest.raises(RuntimeError, match="pass accumulate= to the optimizer, which cuts them"):
        go_on()


def test_parts_after_a_whole_batch_are_refused_where_that_is_held() -> None:
    """The step would evaluate the held batch as a list of parts too: its x and its y here."""
    model = net()
    optimizer = build("sampa", model)
    by_loss_fn(optimizer, model, PLAN[0][1])
    before = flat(model)
    with pytest.raises(ValueError, match="in_parts must be the same in all steps"):
        optimizer.step(partial(half, model), in_halves(PLAN[1][1]), in_parts=True)
    assert torch.equal(flat(model), before)
    by_loss_fn(optimizer, model, PLAN[1][1])  # nothing was lost


@pytest.mark.parametrize("first", [by_bound_closure, by_loss_fn])
def test_a_run_resumes_with_a_bound_closure_whoever_began_it(first: Call) -> None:
    def go_on(optimizer: sampa.SharpnessAware, model: nn.Module, plan: Any, call: Call) -> None:
        for epoch, batch in plan:
            optimizer.set_epoch(epoch)
            call(optimizer, model, batch)

    one, two = net(), net()
    begun, resumed = (build("sampa", model, max_norm=0.5) for model in (one, two))
    go_on(begun, one, PLAN[:4], first)
    two.load_state_dict(one.state_dict())
    resumed.load_state_dict(through_a_file(begun.state_dict()))
    go_on(resumed, two, PLAN[4:], by_bound_closure)
    assert same_bits(two.state_dict(), outcome("sampa", by_loss_fn)[0])


# ---- what is refused ---------------------------------------------------------------------------


def refused(message: str, call: Callable[[sampa.SharpnessAware, nn.Module], Any], **options: Any):
    model = tiny_mlp()
    optimizer, before = sampa.SAM(sgd(model), **options), flat(model)
    with pytest.raises((RuntimeError, TypeError), match=message):
        call(optimizer, model)
    assert torch.equal(flat(model), before)


def closure_on(model: nn.Module) -> Callable[[], Tensor]:
    def closure() -> Tensor:
        loss = cross_entropy_of(model)(BATCH)
        loss.backward()
        return loss

    return closure


class Net(nn.Module):
    def forward(self, batch: Any) -> Tensor:
        return torch.zeros(())


LOSS_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "a function": lambda batch: batch,
    "of several arguments": lambda x, y, scale=1: x,
    "a part of one": partial(lambda model, batch: batch, None),
    "a model": Net(),
}


@pytest.mark.parametrize("kind", LOSS_FUNCTIONS)
def test_a_loss_fn_without_its_batch_is_known_by_its_signature(kind: str) -> None:
    message = r"(?s)step needs batch: .*loss = optimizer\.step\(loss_fn, batch\)"
    refused(message, lambda optimizer, model: optimizer.step(LOSS_FUNCTIONS[kind]))


def test_a_bound_closure_without_its_batch_is_refused() -> None:
    refused("step needs batch", lambda o, m: o.step(sampa.Closure(lambda batch: batch)))


def test_two_forms_in_one_call_are_refused() -> None:
    message = r"step takes loss_fn and a batch, or a closure alone, got both"
    refused(message, lambda o, m: o.step(cross_entropy_of(m), BATCH, closure=closure_on(m)))
    refused(message, lambda o, m: o.step(batch=BATCH, closure=closure_on(m)))


def test_a_closure_that_cannot_be_called_is_refused() -> None:
    wrong: Any = 3
    refused("loss_fn must be callable, got int", lambda o, m: o.step(closure=wrong))


def test_accumulation_is_refused_with_a_closure() -> None:
    message = "accumulate=2 cuts the batch"
    refused(message, lambda o, m: o.step(closure_on(m)), accumulate=2)
    refused(message, lambda o, m: o.step(sampa.Closure(len), BATCH), accumulate=2)


def test_a_closure_is_refused_with_a_scaler_of_the_optimizer() -> None:
    scaler = GradScaler("cpu")
    refused("pass scaler= to the constructor", lambda o, m: o.step(closure_on(m)), scaler=scaler)


@pytest.mark.parametrize("enabled", [True, False])
def test_a_closure_is_refused_through_a_scalers_step(enabled: bool) -> None:
    def call(optimizer: sampa.SharpnessAware, model: nn.Module) -> None:
        scaler = GradScaler("cpu", enabled=enabled)
        scaler.scale(cross_entropy_of(model)(BATCH)).backward()
        scaler.step(optimizer, closure_on(model))

    refused("step cannot take a closure here: with a GradScaler", call)


def test_a_closure_without_backward_is_refused() -> None:
    message = r"a closure must call backward.*optimizer\.step\(loss_fn, batch\)"
    refused(message, lambda o, m: o.step(lambda: cross_entropy_of(m)(BATCH)))
    closure: Any = partial(torch.tensor, math.pi)
    refused(message, lambda o, m: o.step(closure))


def accumulated(optimizer: sampa.SharpnessAware, model: nn.Module, batch: Sample) -> Tensor:
    """As frameworks do it: the first half outside, the second in a closure that zeroes nothing."""
    first, second = ([t[part] for t in batch] for part in (slice(3), slice(3, None)))
    backward(model, tuple(first), divided_by=2)
    return optimizer.step(lambda: backward(model, tuple(second), divided_by=2))


@pytest.mark.parametrize("name", ["sam", "gsam", "looksam", "momentum-sam", "base"])
def test_gradients_from_before_a_closure_are_not_lost_but_refused(name: str) -> None:
    model = net()
    optimizer, before = build(name, model), flat(model)
    with pytest.raises(RuntimeError, match=r"(?s)must zero the gradients.*pass accumulate= to"):
        accumulated(optimizer, model, PLAN[0][1])
    assert torch.equal(flat(model), before)
    assert optimizer.last is None
    by_closure(optimizer, model, PLAN[0][1])  # it zeroes what is there
    twin = net()
    by_closure(build(name, twin), twin, PLAN[0][1])
    assert torch.equal(flat(model), flat(twin))


def test_a_closure_must_return_its_loss() -> None:
    def closure(model: nn.Module) -> None:
        cross_entropy_of(model)(BATCH).backward()

    refused("must return the loss as a tensor", lambda o, m: o.step(partial(closure, m)))


# ---- the initializing call of torch's distributed checkpoint -----------------------------------


@pytest.mark.parametrize("base", [torch.optim.AdamW, torch.optim.SGD])
def test_torchs_distributed_checkpoint_initializes_the_state(base: Any) -> None:
    model = small_net()
    optimizer = sampa.SAMPa(base(model.parameters(), lr=0.1, weight_decay=0.1))
    before = flat(model)
    state: Any = get_optimizer_state_dict(model, optimizer)["state"]
    assert torch.equal(flat(model), before)
    has_moments = base is torch.optim.AdamW
    assert [*state] == [name for name, _ in model.named_parameters() if has_moments]
    assert optimizer.param_groups[0]["lr"] == 0.1
    assert optimizer.last is None


def with_zero_gradients(model: nn.Module) -> nn.Module:
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    return model


def test_the_initializing_call_moves_no_weights_whatever_the_rate() -> None:
    model = with_zero_gradients(tiny_mlp())
    optimizer = sampa.SAM(torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1))
    before = flat(model)
    optimizer.step(closure=None)
    assert torch.equal(flat(model), before)
    assert optimizer.state


def test_a_step_without_gradients_of_its_own_is_refused() -> None:
    """It would be a plain step of the base optimizer, without sharpness."""

    def once_more(optimizer: sampa.SharpnessAware, model: nn.Module) -> None:
        optimizer.step(cross_entropy_of(model), BATCH)
        with_zero_gradients(model)
        optimizer.step(closure=None)

    def with_one_gradient(optimizer: sampa.SharpnessAware, model: nn.Module) -> None:
        with_zero_gradients(model)
        next(model.parameters()).grad = None
        optimizer.step(closure=None)

    refused("step needs loss_fn and batch", lambda o, m: o.step(closure=None))
    refused("step needs loss_fn and batch", with_one_gradient)
    model = tiny_mlp()
    with pytest.raises(RuntimeError, match="step needs loss_fn and batch"):
        once_more(sampa.SAM(sgd(model)), model)
