"""Saving and resuming: the resumed run is the uninterrupted one, bit for bit."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import sampa
from tests.marks import rest_is_slow
from tests.problems import (
    BASES,
    METHODS,
    cross_entropy_of,
    flat,
    image_batches,
    same_bits,
    sgd,
    small_net,
    through_a_file,
    tiny_mlp,
    vector_batches,
)
from tests.ranks import run_ranks

BATCHES = vector_batches(6)
IMAGES = list(image_batches(6, size=4))


def run(optimizer: sampa.SharpnessAware, model: nn.Module, batches: list[Any]) -> None:
    for batch in batches:
        optimizer.step(cross_entropy_of(model), batch)


def everything(optimizer: sampa.SharpnessAware, model: nn.Module) -> list[Any]:
    return [model.state_dict(), optimizer.state_dict()]


# ---- resuming ------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", rest_is_slow(range(1, 5), 1, 3))
@pytest.mark.parametrize("method", METHODS)
def test_a_resumed_run_is_the_uninterrupted_one_at_every_step(method: str, stop: int) -> None:
    """Momentum, BatchNorm, dropout and random directions included."""
    whole, first, second = (small_net() for _ in range(3))
    uninterrupted = METHODS[method](sgd(whole), seed=3)
    stopped = METHODS[method](sgd(first), seed=3)
    run(uninterrupted, whole, IMAGES[:stop])
    run(stopped, first, IMAGES[:stop])
    resumed = METHODS[method](sgd(second), seed=99)
    second.load_state_dict(through_a_file(first.state_dict()))
    resumed.load_state_dict(through_a_file(stopped.state_dict()))
    for batch in IMAGES[stop:]:
        run(uninterrupted, whole, [batch])
        run(resumed, second, [batch])
        assert same_bits(everything(resumed, second), everything(uninterrupted, whole))


@pytest.mark.parametrize("base", BASES)
def test_sampa_resumes_bitwise_on_every_base_optimizer(base: str) -> None:
    """In float32: torch's NAdam keeps a float32 number that loading casts to the weights' type."""
    whole, second = tiny_mlp(dtype=torch.float32), tiny_mlp(dtype=torch.float32)
    batches = vector_batches(6, dtype=torch.float32)
    uninterrupted = sampa.SAMPa(BASES[base](whole.parameters()))
    run(uninterrupted, whole, batches[:3])
    resumed = sampa.SAMPa(BASES[base](second.parameters()))
    second.load_state_dict(copy.deepcopy(whole.state_dict()))
    resumed.load_state_dict(through_a_file(uninterrupted.state_dict()))
    for batch in batches[3:]:
        run(uninterrupted, whole, [batch])
        run(resumed, second, [batch])
        assert same_bits(everything(resumed, second), everything(uninterrupted, whole))


@pytest.mark.parametrize("method", METHODS)
def test_loading_gives_back_the_state_that_was_saved(method: str) -> None:
    model, twin = tiny_mlp(), tiny_mlp()
    optimizer, other = METHODS[method](sgd(model)), METHODS[method](sgd(twin))
    run(optimizer, model, BATCHES[:3])
    saved = through_a_file(optimizer.state_dict())
    other.load_state_dict(copy.deepcopy(saved))
    assert same_bits(other.state_dict(), saved)


def test_training_on_does_not_change_a_loaded_dictionary() -> None:
    model = tiny_mlp()
    optimizer = sampa.SAMPa(sgd(model))
    run(optimizer, model, BATCHES[:3])
    saved = through_a_file(optimizer.state_dict())
    kept = copy.deepcopy(saved["sampa"])
    optimizer.load_state_dict(saved)
    run(optimizer, model, BATCHES[3:])
    assert same_bits(saved["sampa"], kept)


def test_the_scalers_scale_is_part_of_the_state() -> None:
    model = tiny_mlp(dtype=torch.float32)
    batches = vector_batches(3, dtype=torch.float32)
    make = partial(torch.amp.GradScaler, "cpu", growth_interval=1)
    optimizer = sampa.SAM(sgd(model), scaler=make(init_scale=4.0))
    run(optimizer, model, batches)
    other = sampa.SAM(sgd(model), scaler=make(init_scale=1.0))
    other.load_state_dict(through_a_file(optimizer.state_dict()))
    assert other.options.scaler is not None
    assert other.options.scaler.get_scale() == 32.0


def all_settings() -> dict[str, Any]:
    layer = nn.Linear(2, 2)
    return {
        n: make(sgd(layer)).state_dict()["sampa"]["settings"] for n, make in sampa.METHODS.items()
    }


@pytest.mark.dist
def test_settings_are_the_same_in_another_process() -> None:
    """No addresses, no hashes: or resuming would refuse every state."""
    assert run_ranks(1, all_settings) == [all_settings()]


class Warmup:
    """A schedule of rho as users write it, without a __repr__."""

    def __call__(self, t: int) -> float:
        return min(1.0, 0.1 * t)


@pytest.mark.parametrize("make_rho", [Warmup, lambda: partial(max, 0.1), lambda: np.float64(0.1)])
def test_any_kind_of_rho_survives_saving(make_rho: Callable[[], Any]) -> None:
    model = tiny_mlp()
    saved = through_a_file(sampa.SAM(sgd(model), rho=make_rho()).state_dict())
    sampa.SAM(sgd(model), rho=make_rho()).load_state_dict(saved)


# ---- the held batch ------------------------------------------------------------------------------


def without_batch() -> tuple[nn.Module, sampa.SharpnessAware, dict[str, Any]]:
    """A SAMPa run of three batches, and its state without the batch."""
    model = tiny_mlp()
    optimizer = sampa.SAMPa(sgd(model), save_batch=False)
    run(optimizer, model, BATCHES[:3])
    return model, optimizer, through_a_file(optimizer.state_dict())


def test_the_held_batch_may_be_left_out() -> None:
    assert without_batch()[2]["sampa"]["held_batch"] is None


def test_a_batch_handed_back_resumes_bitwise() -> None:
    whole, uninterrupted, saved = without_batch()
    model = copy.deepcopy(whole)
    resumed = sampa.SAMPa(sgd(model), save_batch=False)
    resumed.load_state_dict(saved)
    resumed.hold(BATCHES[2])
    run(uninterrupted, whole, BATCHES[3:])
    run(resumed, model, BATCHES[3:])
    assert torch.equal(flat(model), flat(whole))


def test_a_missing_batch_is_an_error_that_says_what_to_do() -> None:
    model, _, saved = without_batch()
    resumed = sampa.SAMPa(sgd(model), save_batch=False)
    resumed.load_state_dict(saved)
    with pytest.raises(RuntimeError, match=r"held batch is missing.*optimizer\.hold\(batch\)"):
        run(resumed, model, BATCHES[3:4])


def test_handing_a_batch_to_a_method_that_holds_none_is_refused() -> None:
    with pytest.raises(ValueError, match="holds no batch"):
        sampa.SAM(sgd(tiny_mlp())).hold(BATCHES[0])
