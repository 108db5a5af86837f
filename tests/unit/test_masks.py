"""Masks over all weights together, and SSAM's rules for making and changing them."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

import sampa
from sampa.vectors import masks
from sampa.vectors.vector import Vector
from tests.problems import BASES, flat
from tests.variants import (
    BATCHES,
    batch_norm_mlp,
    gradient,
    loss_of,
    normalized_mlp,
    points_of,
    vector,
)

WEIGHTS = 63  # of the tests' net


def flattened(v: Vector) -> Tensor:
    return torch.cat([t.flatten() for t in v if t is not None])


# ---- masks ---------------------------------------------------------------------------------------


def test_top_takes_the_largest_of_all_tensors_together() -> None:
    scores = vector([5.0, 1.0, 4.0], [3.0, 6.0])
    mask = masks.top(scores, 3, scores)
    assert flattened(mask).tolist() == [1, 0, 1, 0, 1]


def test_top_breaks_ties_by_position() -> None:
    scores = vector([1.0, 1.0], [1.0])
    assert flattened(masks.top(scores, 2, scores)).tolist() == [1, 1, 0]


def test_top_leaves_absent_tensors_absent() -> None:
    scores = vector([1.0], None, [2.0])
    mask = masks.top(scores, 1, scores)
    assert mask.tensors[1] is None
    assert flattened(mask).tolist() == [0, 1]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_ones_are_counted_exactly_in_half_precision(dtype: torch.dtype) -> None:
    assert masks.count(Vector([torch.ones(70_001, dtype=dtype)])) == 70_001


def test_swap_drops_the_least_live_entries_and_grows_the_best_dead_ones() -> None:
    mask = vector([1.0, 1.0, 0.0], [0.0, 1.0, 0.0])
    drop = vector([3.0, 1.0, 9.0], [9.0, 2.0, 9.0])
    growth = vector([9.0, 9.0, 1.0], [3.0, 9.0, 2.0])
    assert flattened(masks.swap(mask, drop, growth, 1)).tolist() == [1, 0, 0, 1, 1, 0]


def test_swap_does_not_grow_what_it_has_just_dropped() -> None:
    swapped = masks.swap(vector([1.0, 0.0]), vector([0.0, 0.0]), vector([9.0, 1.0]), 1)
    assert flattened(swapped).tolist() == [0, 1]


def test_swap_grows_entries_of_score_zero() -> None:
    swapped = masks.swap(vector([1.0, 0.0]), vector([5.0, 0.0]), vector([5.0, 0.0]), 1)
    assert flattened(swapped).tolist() == [0, 1]


def test_swap_takes_a_missing_score_as_zero() -> None:
    """A tensor without a gradient is the first to be dropped."""
    swapped = masks.swap(
        vector([1.0, 1.0], [1.0, 0.0]), vector([2.0, 3.0], None), vector(*[[0.0, 0.0]] * 2), 1
    )
    assert flattened(swapped).tolist() == [1, 1, 0, 1]


def test_swap_keeps_tensors_apart_where_others_are_absent() -> None:
    swapped = masks.swap(
        vector(None, [1.0, 0.0]), vector([9.0], [5.0, 0.0]), vector([9.0], [0.0, 7.0]), 1
    )
    assert swapped.tensors[0] is None
    assert flattened(swapped).tolist() == [0, 1]


# ---- SSAM ----------------------------------------------------------------------------------------


def train(batches: Any, passes: int = 1, **settings: Any) -> list[Tensor]:
    """The mask after every step."""
    model = normalized_mlp()
    optimizer = sampa.SparseSAM(BASES["sgd"](model.parameters()), seed=0, **settings)
    seen: list[Tensor] = []
    for epoch in range(passes):
        optimizer.set_epoch(epoch)
        for batch in batches:
            optimizer.step(loss_of(model), batch)
            seen.append(flattened(optimizer._carried.method_state.mask))
    return seen


@pytest.mark.parametrize("sparsity", [0.0, 0.2, 0.5, 0.95, 1.0])
def test_number_of_live_weights_never_changes(sparsity: float) -> None:
    """The published code loses some: truncation, and growing less than it dropped."""
    seen = train(BATCHES[:2], 6, mask="dynamic", sparsity=sparsity)
    assert {int(m.sum().item()) for m in seen} == {WEIGHTS - math.ceil(WEIGHTS * sparsity)}


def test_dynamic_mask_changes_once_at_the_beginning_of_each_epoch() -> None:
    seen = train(BATCHES[:3], 3, mask="dynamic")
    changed = [not torch.equal(a, b) for a, b in zip(seen[1:], seen[:-1], strict=True)]
    assert changed == [False, False, True, False, False, True, False, False]


@pytest.mark.parametrize("kind", ["dynamic", "fisher"])
def test_mask_changes_every_few_epochs(kind: str) -> None:
    seen = train(BATCHES[:1], 5, mask=kind, update_freq=2, num_samples=2, sparsity=0.7)
    changed = [not torch.equal(a, b) for a, b in zip(seen[1:], seen[:-1], strict=True)]
    assert changed == [False, True, False, True]


def test_dynamic_mask_swaps_the_share_of_the_drop_rate() -> None:
    """a = drop_rate (1 + cos(π e / E)) / 2; here L = 31 of 63 and e / E = 1/2, so int(31 / 4)."""
    before, after = train(BATCHES[:1], 2, mask="dynamic", epochs=2)
    assert int(((before == 1) & (after == 0)).sum()) == int(31 * 0.5 * 0.5)


def test_new_dynamic_mask_serves_from_the_next_update_on() -> None:
    model = normalized_mlp()
    optimizer = sampa.SparseSAM(BASES["sgd"](model.parameters()), mask="dynamic", seed=0)
    points: list[Tensor] = []

    def loss_fn(batch: Any) -> sampa.Loss:
        points.append(flat(model))
        return loss_of(model)(batch)

    live = []
    for epoch in range(3):
        optimizer.set_epoch(epoch)
        optimizer.step(loss_fn, BATCHES[0])
        live.append((optimizer._carried.method_state.mask, points[-1] != points[-2]))
    for (mask, _), (_, changed) in pairwise(live):
        assert not (changed & (flattened(mask) == 0)).any()


@pytest.mark.parametrize("kind", ["dynamic", "fisher"])
def test_perturbation_is_zero_off_the_mask_and_shorter_by_its_share(kind: str) -> None:
    """‖x̃ − x‖ = ρ ‖g ⊙ m‖ / ‖g‖."""
    (mask,) = train(BATCHES[:1], mask=kind)
    start, *_, perturbed = points_of(sampa.SparseSAM, mask=kind, seed=0, rho=0.3)[0]
    e = perturbed - start
    g = torch.cat([t.flatten() for t in gradient(normalized_mlp(), BATCHES[0])])
    expected = (0.3 * (g * mask).norm() / g.norm()).item()
    assert (e[mask == 0] == 0).all()
    assert e.norm().item() == pytest.approx(expected, rel=1e-11)


def test_fisher_mask_has_the_largest_sums_of_squared_single_sample_gradients() -> None:
    (mask,) = train(BATCHES[:1], mask="fisher", num_samples=4, sparsity=0.7)
    fisher = torch.zeros(WEIGHTS, dtype=torch.float64)
    for i in range(4):
        one = tuple(t[i : i + 1] for t in BATCHES[0])
        g = torch.cat([t.flatten() for t in gradient(normalized_mlp(), one)])
        fisher += g.square()
    assert int(mask.sum()) == int(WEIGHTS * 0.3)
    assert fisher[mask == 1].min() > fisher[mask == 0].max()


def test_first_fisher_mask_is_made_before_the_first_step() -> None:
    """The published code starts from an empty mask, a plain step of the base optimizer."""
    start, *_, perturbed = points_of(sampa.SparseSAM)[0]
    assert not torch.equal(perturbed, start)


def test_single_samples_of_the_fisher_mask_do_not_touch_batch_norm() -> None:
    """A single sample in training mode would be an error; in evaluation mode nothing is counted."""
    model = batch_norm_mlp()
    optimizer = sampa.SparseSAM(BASES["sgd"](model.parameters()), num_samples=3)
    optimizer.step(loss_of(model), BATCHES[0])
    assert model.get_buffer("1.num_batches_tracked").item() == 1
    assert model[1].training


def test_dynamic_mask_survives_a_tensor_without_a_gradient() -> None:
    model = normalized_mlp()
    optimizer = sampa.SparseSAM(BASES["sgd"](model.parameters()), mask="dynamic", seed=0)
    for epoch in range(3):
        optimizer.set_epoch(epoch)
        optimizer.step(lambda b: model[:3](b[0]).square().mean(), BATCHES[0])
    assert masks.count(optimizer._carried.method_state.mask) == WEIGHTS - math.ceil(WEIGHTS / 2)
