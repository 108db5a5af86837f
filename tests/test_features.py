"""Accumulation, and steps whose gradient is zero or not finite."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

import sampa
from tests.problems import (
    METHODS,
    Batch,
    cross_entropy_of,
    flat,
    same_bits,
    sgd,
    tiny_mlp,
    trajectory,
    vector_batches,
)

BATCHES = vector_batches(5, size=7)


# ---- accumulation --------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [2, 3, 7])
@pytest.mark.parametrize("method", METHODS)
def test_accumulating_gives_the_gradient_of_the_whole_batch(method: str, parts: int) -> None:
    """Uneven for 2 and 3. Sums in another order, five updates: far below 1e-13 in float64."""
    ends = []
    for accumulate in (1, parts):
        model = tiny_mlp()
        optimizer = METHODS[method](sgd(model), accumulate=accumulate, seed=0)
        ends.append(trajectory(optimizer, model, BATCHES, cross_entropy_of(model))[-1])
    torch.testing.assert_close(ends[1], ends[0], rtol=0, atol=1e-13)


def test_accumulating_returns_the_loss_of_the_whole_batch() -> None:
    model, twin = tiny_mlp(), tiny_mlp()
    loss = sampa.SAM(sgd(model), accumulate=3).step(cross_entropy_of(model), BATCHES[0])
    expected = cross_entropy_of(twin)(BATCHES[0]).detach()
    torch.testing.assert_close(loss, expected, rtol=0, atol=1e-15)


def test_each_probe_sees_every_sample_once() -> None:
    model = tiny_mlp()
    sizes: list[int] = []

    def loss_fn(batch: Batch) -> Tensor:
        sizes.append(len(batch[0]))
        return cross_entropy_of(model)(batch)

    sampa.SAM(sgd(model), accumulate=3).step(loss_fn, BATCHES[0])
    assert sizes == [2, 2, 3] * 2


def test_accumulating_perturbs_once_for_the_whole_batch() -> None:
    """Perturbing for each micro-batch would be another method, mSAM."""
    model = tiny_mlp()
    points: list[Tensor] = []

    def loss_fn(batch: Batch) -> Tensor:
        points.append(flat(model))
        return cross_entropy_of(model)(batch)

    sampa.SAM(sgd(model), rho=0.3, accumulate=3).step(loss_fn, BATCHES[0])
    clean, perturbed = points[:3], points[3:]
    assert same_bits(clean, [points[0]] * 3)
    assert same_bits(perturbed, [points[3]] * 3)
    assert not torch.equal(points[0], points[3])


def test_a_batch_smaller_than_the_number_of_parts_is_refused() -> None:
    model = tiny_mlp()
    optimizer = sampa.SAM(sgd(model), accumulate=8)
    with pytest.raises(ValueError, match="7 samples cannot be cut into 8 micro-batches"):
        optimizer.step(cross_entropy_of(model), BATCHES[0])


PARTS: dict[str, Callable[..., sampa.SharpnessAware]] = {
    "ssam-f": partial(sampa.SparseSAM, mask="fisher"),
    "esam": partial(sampa.ESAM, gamma=0.2),  # one sample of seven
    "async-sam": partial(sampa.AsyncSAM, ascent_share=0.2),
    "async-sam ahead": partial(sampa.AsyncSAM, ascent_share=0.2, ascent_batch="next"),
    "msam by size": partial(sampa.MicroBatchSAM, micro_batch_size=2),
    "msam by number": partial(sampa.MicroBatchSAM, num_shards=5),
    "sampa with msam": partial(sampa.SAMPa, micro_batches=sampa.MicroBatches(2)),
}


def per_sample_loss(model: nn.Module) -> Callable[[Batch], sampa.Loss]:
    def loss_fn(batch: Batch) -> sampa.Loss:
        x, y = batch
        return sampa.Loss(per_sample=nn.functional.cross_entropy(model(x), y, reduction="none"))

    return loss_fn


@pytest.mark.parametrize("method", PARTS)
def test_a_part_with_fewer_samples_than_micro_batches_is_cut_into_its_samples(method: str) -> None:
    ends = []
    for accumulate in (1, 6):
        model = tiny_mlp()
        optimizer = PARTS[method](sgd(model), accumulate=accumulate, seed=0)
        for batch in BATCHES:
            optimizer.step(per_sample_loss(model), batch)
        ends.append(flat(model))
    torch.testing.assert_close(ends[1], ends[0], rtol=0, atol=1e-13)


# ---- gradients that are not finite, or zero ------------------------------------------------------


def spoiled(model: nn.Module, in_pass: int, factor: float) -> Callable[[Batch], Tensor]:
    """A loss_fn whose gradient is not finite in one of its calls."""
    calls = 0

    def loss_fn(batch: Batch) -> Tensor:
        nonlocal calls
        calls += 1
        loss = cross_entropy_of(model)(batch)
        return loss * factor if calls - 1 == in_pass else loss

    return loss_fn


@pytest.mark.parametrize("factor", [math.nan, math.inf])
@pytest.mark.parametrize("in_pass", [0, 1])
@pytest.mark.parametrize("method", ["sam", "sam-db", "sampa-0", "sampa-0.2"])
def test_a_bad_gradient_in_either_probe_skips_the_whole_step(
    method: str, in_pass: int, factor: float
) -> None:
    model = tiny_mlp()
    optimizer = METHODS[method](sgd(model))
    trajectory(optimizer, model, BATCHES[:3], cross_entropy_of(model))
    before = flat(model), copy.deepcopy(optimizer.base.state_dict())
    optimizer.step(spoiled(model, in_pass, factor), BATCHES[3])
    assert same_bits((flat(model), optimizer.base.state_dict()), before)
    assert optimizer.last is not None
    assert (optimizer.last.skipped, optimizer.last.updated) == (True, False)
    assert (optimizer.last.skips, optimizer.last.step) == (1, 3 if method == "sam" else 2)


def test_a_skipped_step_leaves_no_gradient_behind() -> None:
    model = tiny_mlp()
    sampa.SAM(sgd(model)).step(spoiled(model, 1, math.nan), BATCHES[0])
    assert all(p.grad is None for p in model.parameters())


def test_one_bad_entry_is_enough_to_skip() -> None:
    model = tiny_mlp()
    bias = model.get_parameter("2.bias")
    bias.register_hook(lambda g: g.index_fill(0, torch.tensor([1]), math.nan))
    before = flat(model)
    optimizer = sampa.SAM(sgd(model))
    optimizer.step(cross_entropy_of(model), BATCHES[0])
    assert optimizer.last is not None
    assert optimizer.last.skipped
    assert torch.equal(flat(model), before)


@pytest.mark.parametrize("in_pass", [0, 1])
def test_sampa_starts_again_with_the_batch_after_a_bad_one(in_pass: int) -> None:
    """Neither the bad batch nor its gradient is used again."""
    model, twin = tiny_mlp(), tiny_mlp()
    optimizer, fresh = sampa.SAMPa(sgd(model)), sampa.SAMPa(sgd(twin))
    optimizer.step(cross_entropy_of(model), BATCHES[0])
    optimizer.step(spoiled(model, in_pass, math.nan), BATCHES[1])
    for m, o in ((model, optimizer), (twin, fresh)):
        trajectory(o, m, BATCHES[2:], cross_entropy_of(m))
    assert torch.equal(flat(model), flat(twin))


def test_too_many_skips_in_a_row_are_an_error() -> None:
    model = tiny_mlp()
    optimizer = sampa.SAM(sgd(model), max_skips=2)
    optimizer.step(spoiled(model, 0, math.nan), BATCHES[0])
    message = r"2 steps in a row had a gradient that is not finite \(losses \(nan, nan\).*max_skips"
    with pytest.raises(RuntimeError, match=message):
        optimizer.step(spoiled(model, 0, math.nan), BATCHES[1])


def test_a_good_step_starts_the_count_of_skips_again() -> None:
    model = tiny_mlp()
    optimizer = sampa.SAM(sgd(model), max_skips=2)
    for batch in BATCHES:
        optimizer.step(spoiled(model, 0, math.nan), batch)
        optimizer.step(cross_entropy_of(model), batch)
    assert optimizer.last is not None
    assert optimizer.last.skips == len(BATCHES)


@pytest.mark.parametrize("method", METHODS)
def test_a_zero_gradient_gives_a_finite_result(method: str) -> None:
    model = tiny_mlp()
    before = flat(model)
    optimizer = METHODS[method](sgd(model, weight_decay=0.0))
    for batch in BATCHES:
        optimizer.step(lambda b: 0.0 * cross_entropy_of(model)(b), batch)
    assert torch.equal(flat(model), before)
    assert optimizer.last is not None
    assert not optimizer.last.skipped
