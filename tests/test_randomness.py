"""Failures change nothing, and randomness is the optimizer's own."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sampa
from tests.problems import (
    METHODS,
    Batch,
    cross_entropy_of,
    flat,
    image_batches,
    same_bits,
    sgd,
    small_net,
)

IMAGES = list(image_batches(4, size=4))


class Interruption(Exception):
    pass


def image_run(method: str, fail_in_pass: int | None = None, **options: Any) -> tuple[Any, ...]:
    """Four batches through BatchNorm and dropout; a failing third call is tried again."""
    model = small_net()
    optimizer = METHODS[method](sgd(model), seed=0, **options)
    loss_fn = cross_entropy_of(model)
    passes = 0

    def failing(batch: Batch) -> Tensor:
        nonlocal passes
        passes += 1
        loss = loss_fn(batch)
        if passes - 1 == fail_in_pass:
            raise Interruption
        return loss

    for number, batch in enumerate(IMAGES):
        if number == 2 and fail_in_pass is not None:
            before = [flat(model), copy.deepcopy(optimizer.state_dict()), torch.get_rng_state()]
            with pytest.raises(Interruption):
                optimizer.step(failing, batch)
            after = [flat(model), optimizer.state_dict(), torch.get_rng_state()]
            assert same_bits(before, after)
            assert model.bn.track_running_stats is True
        optimizer.step(loss_fn, batch)
    return flat(model), optimizer.state_dict()


@pytest.mark.parametrize(
    ("method", "fail_in_pass"),
    [(m, 0) for m in METHODS] + [(m, 1) for m in METHODS if m.startswith("sam")],
)
def test_an_exception_in_loss_fn_changes_nothing_and_training_goes_on(
    method: str, fail_in_pass: int
) -> None:
    """BatchNorm's buffers are the model's own and may have counted; weights and state are equal."""
    assert same_bits(image_run(method, fail_in_pass), image_run(method))


@pytest.mark.parametrize("method", METHODS)
def test_a_step_does_not_consume_torchs_random_stream(method: str) -> None:
    model = small_net()
    optimizer = METHODS[method](sgd(model))
    before = torch.get_rng_state()
    for batch in IMAGES:
        optimizer.step(cross_entropy_of(model), batch)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("method", METHODS)
def test_a_run_depends_on_its_seed_and_not_on_torchs_random_stream(method: str) -> None:
    first = image_run(method)
    torch.rand(17)
    assert same_bits(first, image_run(method))


def test_another_seed_gives_other_dropout_masks() -> None:
    ends = []
    for seed in (0, 1):
        model = small_net()
        optimizer = sampa.SAM(sgd(model), seed=seed)
        optimizer.step(cross_entropy_of(model), IMAGES[0])
        ends.append(flat(model))
    assert not torch.equal(*ends)


def losses_with_dropout(make: Any, calls: int, same_noise: bool) -> list[tuple[float, ...]]:
    model = small_net(batch_norm=False)
    optimizer = make(sgd(model), rho=0.0, same_noise=same_noise)
    losses = []
    for batch in IMAGES[:calls]:
        optimizer.step(cross_entropy_of(model), batch)
        losses.append(optimizer.last.losses)
    return losses


def test_same_noise_shows_both_passes_of_sam_the_same_masks() -> None:
    ((clean, perturbed),) = losses_with_dropout(sampa.SAM, 1, same_noise=True)
    assert clean == perturbed


def test_passes_of_sam_see_different_masks_by_default() -> None:
    ((clean, perturbed),) = losses_with_dropout(sampa.SAM, 1, same_noise=False)
    assert clean != perturbed


def test_same_noise_shows_a_held_batch_the_masks_it_had_as_incoming_one() -> None:
    """y_0 = x_0 and rho = 0: the same weights, batch and masks, one call later."""
    ((at_y,), (at_x, _)) = losses_with_dropout(sampa.SAMPa, 2, same_noise=True)
    assert at_y == at_x


def masks_of_micro_batches(method: str, calls: int) -> list[list[Tensor]]:
    """What dropout let through in each pass of each call, with two micro-batches a batch."""
    weight, dropout = nn.Parameter(torch.ones(64)), nn.Dropout(0.5)
    base = torch.optim.SGD([weight], lr=0.1)
    optimizer = {
        "msam": partial(sampa.MicroBatchSAM, num_shards=2),
        "sampa": partial(sampa.SAMPa, micro_batches=sampa.MicroBatches(count=2)),
    }[method](base, same_noise=True)
    seen: list[list[Tensor]] = []

    def loss_fn(batch: Tensor) -> Tensor:
        output = dropout(weight.expand(len(batch), -1))
        seen[-1].append(output.detach() != 0)
        return output.square().mean()

    for _ in range(calls):
        seen.append([])
        optimizer.step(loss_fn, torch.zeros(4, 1))
    return seen


def test_same_noise_shows_each_micro_batch_masks_of_its_own() -> None:
    ((first, second, first_again, second_again),) = masks_of_micro_batches("msam", 1)
    assert not torch.equal(first, second)
    assert torch.equal(first, first_again)
    assert torch.equal(second, second_again)


def test_same_noise_shows_held_micro_batches_the_masks_they_had() -> None:
    (at_y, later) = masks_of_micro_batches("sampa", 2)
    assert not torch.equal(at_y[0], at_y[1])
    assert [sum(torch.equal(mask, m) for m in later) for mask in at_y] == [1, 1]


@pytest.mark.parametrize("same_noise", [True, False])
def test_every_call_draws_new_masks(same_noise: bool) -> None:
    """The same batch at the same weights: only the masks can change the loss."""
    model = small_net(batch_norm=False)
    optimizer = sampa.SAM(sgd(model, lr=0.0), rho=0.0, same_noise=same_noise)
    losses = [optimizer.step(cross_entropy_of(model), IMAGES[0]).item() for _ in range(2)]
    assert losses[0] != losses[1]
