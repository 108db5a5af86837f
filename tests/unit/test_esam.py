"""ESAM: a random part of the weights is perturbed, the hardest samples make the update."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import sampa
from sampa.methods.esam import hardest
from tests.problems import BASES, flat
from tests.variants import (
    BATCHES,
    gradient_at,
    loss_of,
    normalized_mlp,
    points_of,
    run,
    training_loss,
)

RHO = 0.3
SIZES = [p.numel() for p in normalized_mlp().parameters()]
S = [True, False, False, True, False, True]
CHOSEN = torch.cat([torch.full((n,), kept) for n, kept in zip(SIZES, S, strict=True)])


def given_subset(context: sampa.Context) -> list[bool]:
    return S


def moves(batches: Any = BATCHES, **settings: Any) -> list[Tensor]:
    """x̃ − x of every step."""
    calls = points_of(sampa.ESAM, batches, rho=RHO, **settings)
    return [points[-1] - points[0] for points in calls]


def changed_tensors(e: Tensor) -> list[bool]:
    return [bool((part != 0).any()) for part in e.split(SIZES)]


# ---- SWP -----------------------------------------------------------------------------------------


def test_tensors_outside_the_subset_are_bitwise_unchanged() -> None:
    (e,) = moves(BATCHES[:1], subset=given_subset)
    assert (e[~CHOSEN] == 0).all()
    assert changed_tensors(e) == S


@pytest.mark.parametrize("beta", [0.2, 0.5, 1.0])
def test_perturbation_of_a_subset_has_length_rho_over_beta(beta: float) -> None:
    for e in moves(beta=beta, subset=given_subset):
        # eps = 1e-12 beside a norm of some 0.1.
        assert e.norm().item() == pytest.approx(RHO / beta, rel=1e-10)


def test_all_tensors_are_perturbed_at_the_first_step() -> None:
    assert all(changed_tensors(moves(BATCHES[:1], beta=0.01)[0]))


def test_each_tensor_is_chosen_with_probability_beta() -> None:
    """35 later steps of 6 tensors, β = 0.3: a deviation of 0.03; fixed seed, 0.1 is three of it."""
    later = moves(BATCHES * 6, beta=0.3, seed=0)[1:]
    chosen = [kept for e in later for kept in changed_tensors(e)]
    assert sum(chosen) / len(chosen) == pytest.approx(0.3, abs=0.1)


def test_a_fresh_subset_is_drawn_each_step() -> None:
    assert len({tuple(changed_tensors(e)) for e in moves(seed=0)[1:]}) > 1


def test_an_empty_subset_makes_a_plain_step() -> None:
    """And no backward pass for the first gradient: autograd refuses if nothing needs one."""
    actual = run(sampa.ESAM, rho=RHO, subset=lambda context: [False] * 6)
    assert torch.equal(actual[-1], run(sampa.Base)[-1])


def test_first_backward_computes_gradients_of_the_subset_alone() -> None:
    model = normalized_mlp()
    wanted: list[list[bool]] = []

    def loss_fn(batch: Any) -> sampa.Loss:
        wanted.append([p.requires_grad for p in model.parameters()])
        return loss_of(model)(batch)

    base = BASES["sgd"](model.parameters())
    sampa.ESAM(base, subset=given_subset).step(loss_fn, BATCHES[0])
    assert wanted == [S, [True] * 6]


def test_a_failing_first_pass_leaves_every_weight_trainable() -> None:
    model = normalized_mlp()
    optimizer = sampa.ESAM(BASES["sgd"](model.parameters()), subset=given_subset)
    with pytest.raises(ZeroDivisionError):
        optimizer.step(lambda batch: training_loss(loss_of(model)(batch)) / (1 // 0), BATCHES[0])
    assert all(p.requires_grad for p in model.parameters())


def test_element_form_is_normalized_by_the_whole_gradient() -> None:
    """x̃ = x + (ρ/β) m ⊙ g / ‖g‖."""
    (e,) = moves(BATCHES[:1], beta=0.5, swp="element", subset=given_subset)
    g = gradient_at(flat(normalized_mlp()), BATCHES[0])
    expected = 2 * RHO * (g * CHOSEN) / g.norm()
    torch.testing.assert_close(e, expected, rtol=0, atol=1e-12)


def test_element_form_masks_single_weights_with_probability_beta() -> None:
    """6 steps of 63 weights, β = 0.3: a deviation of 0.024; fixed seed, 0.08 is three of it."""
    kept = [(e != 0).double().mean().item() for e in moves(beta=0.3, swp="element", seed=0)]
    assert sum(kept) / len(kept) == pytest.approx(0.3, abs=0.08)


def test_element_form_has_sams_perturbation_as_its_mean() -> None:
    """E[m] / β = 1, over 100 masks from fixed seeds."""
    total = torch.zeros(sum(SIZES), dtype=torch.float64)
    for seed in range(100):
        total += moves(BATCHES[:1], beta=0.5, swp="element", seed=seed)[0]
    g = gradient_at(flat(normalized_mlp()), BATCHES[0])
    sam = RHO * g / g.norm()
    # An entry is 0 or twice SAM's, so that the mean of 100 deviates by a tenth of SAM's; 4.5 times
    # that is passed by one of 63 entries with a probability of 4e-4, for seeds that are fixed.
    assert ((total / 100 - sam).abs() <= 0.45 * sam.abs() + 1e-15).all()


# ---- SDS -----------------------------------------------------------------------------------------

CLEAN = torch.tensor([1.0, 2.0, 3.0, 4.0])
PERTURBED = torch.tensor([1.5, 2.1, 3.9, 4.2])  # rises of 0.5, 0.1, 0.9, 0.2


@pytest.mark.parametrize(
    ("gamma", "kept"), [(0.5, [0, 2]), (0.25, [2]), (0.01, [2]), (0.75, [0, 2, 3]), (0.7, [0, 2])]
)
def test_hardest_samples_are_those_whose_loss_rises_most(gamma: float, kept: list[int]) -> None:
    """k = max(1, int(γ n)); the published code keeps one less, and possibly none."""
    assert hardest(CLEAN, PERTURBED, gamma).tolist() == kept


def test_update_is_the_mean_gradient_of_the_hardest_samples() -> None:
    start = flat(normalized_mlp())
    after = run(sampa.ESAM, BATCHES[:1], "sgd", rho=RHO, beta=1.0, gamma=0.5)[0]
    g = gradient_at(start, BATCHES[0])
    x_tilde = start + RHO * g / g.norm()
    rises = sample_losses(x_tilde) - sample_losses(start)
    kept = rises.argsort(descending=True)[:3].sort().values
    part = tuple(t[kept] for t in BATCHES[0])
    torch.testing.assert_close(after, start - 0.1 * gradient_at(x_tilde, part), rtol=0, atol=1e-12)


def sample_losses(point: Tensor) -> Tensor:
    model = normalized_mlp()
    torch.nn.utils.vector_to_parameters(point, model.parameters())
    per_sample = loss_of(model)(BATCHES[0]).per_sample
    assert per_sample is not None
    return per_sample.detach()


@pytest.mark.parametrize(("gamma", "passes"), [(0.5, 3), (0.98, 3), (1.0, 2)])
def test_selection_costs_a_forward_pass_only_where_it_selects(gamma: float, passes: int) -> None:
    (points,) = points_of(sampa.ESAM, BATCHES[:1], gamma=gamma)
    assert len(points) - 1 == passes


def test_selection_sees_whole_batches_under_accumulation() -> None:
    whole = run(sampa.ESAM, rho=RHO, beta=1.0, gamma=0.5)
    parts = run(sampa.ESAM, rho=RHO, beta=1.0, gamma=0.5, accumulate=2)
    torch.testing.assert_close(parts[-1], whole[-1], rtol=0, atol=1e-12)
