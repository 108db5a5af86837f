"""Every method of the catalog through the same suite, with settings in which all of it acts."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

import sampa
from tests.problems import flat, same_bits, through_a_file
from tests.variants import (
    ACTIVE,
    BATCHES,
    PLAN,
    Sample,
    batch_norm_mlp,
    build,
    loss_of,
    net,
    train,
    training_loss,
)

every_method = pytest.mark.parametrize("name", ACTIVE)


def everything(optimizer: sampa.SharpnessAware, model: nn.Module) -> list[Any]:
    return copy.deepcopy([model.state_dict(), optimizer.state_dict()])


def test_suite_covers_the_catalog() -> None:
    assert list(ACTIVE) == list(sampa.METHODS)


# ---- saving and repeating ------------------------------------------------------------------------


@pytest.mark.parametrize("stop", [1, 4])
@every_method
def test_a_resumed_run_is_the_uninterrupted_one(name: str, stop: int) -> None:
    """Through a file, with BatchNorm, dropout, momentum and the epoch, in the middle of one."""
    model, second = net(), net()
    whole = build(name, model)
    list(train(whole, model, PLAN[:stop]))
    saved = through_a_file(copy.deepcopy([model.state_dict(), whole.state_dict()]))
    resumed = build(name, second, seed=99)
    second.load_state_dict(saved[0])
    resumed.load_state_dict(saved[1])
    for step in PLAN[stop:]:
        assert list(train(whole, model, [step])) == list(train(resumed, second, [step]))
        assert same_bits(everything(whole, model), everything(resumed, second))


@every_method
def test_loading_gives_back_what_was_saved(name: str) -> None:
    model = net()
    optimizer = build(name, model)
    list(train(optimizer, model, PLAN[:5]))
    saved = through_a_file(optimizer.state_dict())
    fresh = build(name, net())
    fresh.load_state_dict(saved)
    assert same_bits(through_a_file(fresh.state_dict()), saved)


@every_method
def test_training_on_does_not_change_a_loaded_dictionary(name: str) -> None:
    model = net()
    optimizer = build(name, model)
    list(train(optimizer, model, PLAN[:5]))
    saved = through_a_file(optimizer.state_dict())
    before = copy.deepcopy(saved)
    optimizer.load_state_dict(saved)
    list(train(optimizer, model, PLAN[5:]))
    # torch's own part is shared with the base optimizer, as after any torch optimizer's loading.
    assert same_bits(saved["sampa"], before["sampa"])


@every_method
def test_two_runs_have_the_same_bits(name: str) -> None:
    """Whatever torch's global generator is at."""
    ends = []
    for noise in range(2):
        model = net()
        optimizer = build(name, model)
        torch.manual_seed(noise)
        list(train(optimizer, model, PLAN))
        ends.append(everything(optimizer, model))
    assert same_bits(*ends)


# ---- training ------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", ["sgd-momentum", "adamw"])
@every_method
def test_loss_falls_to_half_on_a_repeated_batch(name: str, base: str) -> None:
    model = batch_norm_mlp()
    start = training_loss(loss_of(model)(BATCHES[0])).item()
    list(train(build(name, model, base), model, [(i // 10, BATCHES[0]) for i in range(25)]))
    assert training_loss(loss_of(model)(BATCHES[0])).item() < start / 2


def digits() -> tuple[list[Sample], Sample]:
    """Thirty batches of 32, and 837 images to test on."""
    data: Any = load_digits()  # a Bunch; annotated as what return_X_y would give
    x = torch.tensor(data.images, dtype=torch.float32).flatten(1) / 16
    y, index = torch.tensor(data.target), torch.arange(len(data.target))
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    training = [(x[i], y[i], index[i]) for i in order[:960].split(32)]
    return training, (x[order[960:]], y[order[960:]], index[order[960:]])


DIGITS, HELD_OUT = digits()


@pytest.mark.parametrize("name", sampa.METHODS)
def test_defaults_learn_the_digits(name: str) -> None:
    """Thirty steps with default settings; chance is 10 % right."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10))
    base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = sampa.METHODS[name](base)
    list(train(optimizer, model, [(0, batch) for batch in DIGITS]))
    model.eval()
    right = (model(HELD_OUT[0]).argmax(1) == HELD_OUT[1]).double().mean().item()
    assert right > 0.8


# Without the model MESA cannot know BatchNorm's statistics before the first pass.
@pytest.mark.parametrize("name", [n for n in ACTIVE if n != "mesa"])
def test_a_run_is_the_same_with_and_without_the_model(name: str) -> None:
    """Layers are noticed as they run: SAM-ON's choice, ASAM's names, BatchNorm's switches."""
    ends = []
    for known in (True, False):
        model = net()
        optimizer = build(name, model, executor=sampa.Serial(model) if known else None)
        list(train(optimizer, model, PLAN))
        ends.append(everything(optimizer, model))
    assert same_bits(*ends)


@every_method
def test_batch_norm_counts_every_batch_once(name: str) -> None:
    model = batch_norm_mlp()
    list(train(build(name, model), model, PLAN))
    assert model[1].num_batches_tracked == len(PLAN)


# ---- failures ------------------------------------------------------------------------------------


@every_method
def test_a_failure_in_the_last_pass_leaves_everything_as_it_was(name: str) -> None:
    """Weights, state, and the layers' switches; only BatchNorm has seen the passes before."""
    model, twin = net(), net()
    optimizer, counting = build(name, model), build(name, twin)
    for m, o in ((model, optimizer), (twin, counting)):
        list(train(o, m, PLAN[:4]))
    calls = 0

    def count(batch: Sample) -> sampa.Loss:
        nonlocal calls
        calls += 1
        return loss_of(twin)(batch)

    counting.step(count, PLAN[4][1])
    weights, state = flat(model), copy.deepcopy(optimizer.state_dict())

    def fail(batch: Sample) -> sampa.Loss:
        nonlocal calls
        calls -= 1
        if calls == 0:
            raise KeyError("broken")
        return loss_of(model)(batch)

    with pytest.raises(KeyError, match="broken"):
        optimizer.step(fail, PLAN[4][1])
    assert torch.equal(flat(model), weights)
    assert same_bits(optimizer.state_dict(), state)
    assert all(m.training for m in model.modules())
    assert all(p.requires_grad for p in model.parameters())
    assert model[1].track_running_stats


@every_method
def test_a_step_with_a_gradient_that_is_not_finite_is_skipped(name: str) -> None:
    """The weights stay, and training goes on afterwards."""
    model = net()
    optimizer = build(name, model)
    list(train(optimizer, model, PLAN[:4]))
    before = flat(model)
    broken: Callable[[Sample], sampa.Loss] = partial(times, model, float("nan"))
    optimizer.step(broken, PLAN[4][1])
    assert optimizer.last is not None
    assert optimizer.last.skipped
    assert torch.equal(flat(model), before)
    list(train(optimizer, model, PLAN[5:]))
    assert flat(model).isfinite().all()
    assert not torch.equal(flat(model), before)


def times(model: nn.Module, factor: float, batch: Sample) -> sampa.Loss:
    loss = loss_of(model)(batch)
    assert loss.value is not None
    assert loss.logits is not None
    return sampa.Loss(
        loss.value * factor, loss.per_sample, loss.logits * factor, loss.targets, loss.index
    )


@every_method
def test_a_round_has_as_many_probes_as_the_method_says(name: str) -> None:
    model = net()
    optimizer = build(name, model)
    widest = 0
    for _ in train(optimizer, model, PLAN):
        assert optimizer.last is not None
        widest = max(widest, optimizer.last.probes // optimizer.last.rounds)
    assert optimizer.method.probes_per_round == widest
