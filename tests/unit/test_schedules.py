"""When to perturb, and how far: LookSAM's period, RST's coins, AE-SAM's rule, GSAM's radius."""

from __future__ import annotations

import math

import pytest
import torch

import sampa
from sampa.pieces.when import Always, Coin, Every, LargeGradient, Probability
from tests.problems import BASES, flat
from tests.variants import (
    BATCHES,
    assert_same,
    context,
    gradient_at,
    loss_of,
    normalized_mlp,
    points_of,
    run,
    vector,
)

G = vector([1.0])


def decisions(policy: Always | Every | Coin, steps: int) -> list[bool]:
    return [policy(context([], t=t), G, ())[0] for t in range(steps)]


# ---- LookSAM -------------------------------------------------------------------------------------


def test_every_k_begins_with_the_first_step() -> None:
    assert decisions(Every(3), 7) == [True, False, False, True, False, False, True]


def test_looksam_takes_two_gradients_every_k_steps_and_one_between() -> None:
    calls = points_of(sampa.LookSAM, BATCHES, k=3)
    assert [len(points) - 1 for points in calls] == [2, 1, 1, 2, 1, 1]


# ---- RST -----------------------------------------------------------------------------------------

TOTAL = 10
SCHEDULES: dict[tuple[str, float], list[float]] = {
    ("constant", 0.6): [0.6, 0.6, 0.6, 0.6, 0.6],
    ("piecewise1", 0.3): [0.0, 0.0, 1.0, 1.0, 1.0],
    ("piecewise2", 0.3): [1.0, 1.0, 0.0, 0.0, 0.0],
    ("piecewise3", 0.3): [0.3, 0.3, 0.3, 0.7, 0.7],
    ("linear1", 0.3): [0.0, 0.12, 0.18, 0.3, 0.6],
    ("linear1", 0.8): [0.6, 0.68, 0.72, 0.8, 1.0],
    ("linear2", 0.3): [0.3, 0.38, 0.42, 0.5, 0.7],
}


@pytest.mark.parametrize(("schedule", "p"), SCHEDULES)
def test_rst_schedule_has_the_published_values(schedule: str, p: float) -> None:
    probability = Probability(p, schedule, TOTAL)
    actual = [probability(t) for t in (0, 2, 3, 5, 10)]
    assert actual == pytest.approx(SCHEDULES[schedule, p], rel=0, abs=1e-15)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
def test_first_linear_schedule_has_mean_p(p: float) -> None:
    probability = Probability(p, "linear1", 100)
    assert sum(probability(t) for t in range(101)) / 101 == pytest.approx(p, rel=1e-12)


def test_rst_schedule_stays_at_its_end_after_the_last_step() -> None:
    assert Probability(0.3, "linear2", TOTAL)(3 * TOTAL) == pytest.approx(0.7, rel=1e-15)


def test_coins_fall_with_their_probability() -> None:
    """2000 coins with p = 0.3: a deviation of 0.01; the seeds are fixed, 0.04 is four of those."""
    heads = decisions(Coin(Probability(0.3, "constant", None), coins=None, warmup=0), 2000)
    assert sum(heads) / 2000 == pytest.approx(0.3, abs=0.04)


def test_coins_depend_on_the_seed_and_the_step_alone() -> None:
    """Ranks with the same seed then take the same decisions, whatever else they draw."""
    counts = []
    for noise in range(2):
        model = normalized_mlp()
        optimizer = sampa.RST(BASES["sgd"](model.parameters()), p=0.5, seed=5)
        torch.manual_seed(noise)
        counts.append([])
        for batch in BATCHES * 2:
            optimizer.step(loss_of(model), batch)
            assert optimizer.last is not None
            counts[-1].append(optimizer.last.probes)
    assert counts[0] == counts[1]
    assert set(counts[0]) == {1, 2}  # both sides came up


def test_rst_takes_one_gradient_where_the_coin_says_base() -> None:
    calls = points_of(sampa.RST, BATCHES[:3], coins=[False, True, False])
    assert [len(points) - 1 for points in calls] == [1, 2, 1]


def test_coins_that_run_out_are_an_error_that_says_which() -> None:
    with pytest.raises(ValueError, match=r"len\(coins\) must be >= 3 for update number 3, got 2"):
        run(sampa.RST, coins=[True, False])


@pytest.mark.parametrize("gamma", [None, 0.5, 1 / 0.3])
def test_expected_gradient_of_rst_mixes_the_two(gamma: float | None) -> None:
    """E[G] = (1 − γ p) g + γ p g̃, from the step after each side of the coin (γ = 1 without mix)."""
    p, strength, start = 0.3, 1.0 if gamma is None else gamma, flat(normalized_mlp())
    handed_on = [
        (start - run(sampa.RST, BATCHES[:1], "sgd", coins=[coin], gamma=gamma, rho=0.3)[0]) / 0.1
        for coin in (False, True)
    ]
    g = gradient_at(start, BATCHES[0])
    g_tilde = gradient_at(start + 0.3 * g / g.norm(), BATCHES[0])
    mean = (1 - p) * handed_on[0] + p * handed_on[1]
    expected = (1 - strength * p) * g + strength * p * g_tilde
    torch.testing.assert_close(mean, expected, rtol=0, atol=1e-10)  # eps, and a division by lr


# ---- AE-SAM --------------------------------------------------------------------------------------


def test_controller_has_the_published_thresholds_and_decisions() -> None:
    """δ = 0.9, λ₁ = −1, λ₂ = 1, T = 6, q = 4, 1, 1, 9, 1, 1."""
    policy, memory = LargeGradient(0.9, -1.0, 1.0, total_steps=6), ()
    thresholds, perturbed = [], []
    for t, q in enumerate([4.0, 1.0, 1.0, 9.0, 1.0, 1.0]):
        decision, memory = policy(context([], t=t), vector([math.sqrt(q)]), memory)
        mean, variance = memory
        thresholds.append(mean + policy.deviations(t) * math.sqrt(variance))
        perturbed.append(decision)
    expected = [1.538438, 1.188956, 0.863548, 1.3626, 0.499629, -0.276090]
    assert thresholds == pytest.approx(expected, rel=0, abs=5e-7)
    assert perturbed == [True, False, True, True, True, True]


def test_threshold_falls_from_lambda2_to_lambda1_and_stays() -> None:
    policy = LargeGradient(0.9, lambda1=-3.0, lambda2=5.0, total_steps=4)
    assert [policy.deviations(t) for t in (0, 1, 2, 4, 40)] == [5.0, 3.0, 1.0, -3.0, -3.0]


def test_threshold_stays_in_the_middle_if_the_run_has_no_known_end() -> None:
    policy = LargeGradient(0.9, lambda1=-3.0, lambda2=5.0, total_steps=None)
    assert [policy.deviations(t) for t in (0, 7)] == [1.0, 1.0]


def test_ae_sam_takes_one_gradient_where_the_norm_is_small() -> None:
    """The same batch again with a tenth of its gradient: below the running mean, so base."""
    model = normalized_mlp()
    optimizer = sampa.AESAM(BASES["sgd"](model.parameters()), rho=0.1)
    gradients = []
    for factor in (1.0, 0.1, 10.0):

        def loss_fn(batch: object, factor: float = factor) -> torch.Tensor:
            value = loss_of(model)(BATCHES[0]).value
            assert value is not None
            return factor * value

        optimizer.step(loss_fn, BATCHES[0])
        assert optimizer.last is not None
        gradients.append(optimizer.last.probes)
    assert gradients == [2, 1, 2]


# ---- GSAM's radius -------------------------------------------------------------------------------


@pytest.mark.parametrize(("lr", "rho"), [(0.2, 0.5), (0.1, 0.3), (0.05, 0.2), (0.0, 0.1)])
def test_gsams_radius_falls_with_the_learning_rate(lr: float, rho: float) -> None:
    """ρ_t = ρ_min + (ρ − ρ_min) (η − η_min) / (η_max − η_min), here from 0.5 to 0.1."""
    model = normalized_mlp()
    base = torch.optim.SGD(model.parameters(), lr=lr)
    optimizer = sampa.GSAM(base, rho=0.5, rho_min=0.1, lr_max=0.2)
    points = []

    def loss_fn(batch: object) -> sampa.Loss:
        points.append(flat(model))
        return loss_of(model)(BATCHES[0])

    optimizer.step(loss_fn, BATCHES[0])
    assert (points[1] - points[0]).norm().item() == pytest.approx(rho, rel=1e-10)


def test_gsams_radius_is_the_largest_if_the_learning_rate_never_changes() -> None:
    scheduled = run(sampa.GSAM, rho=0.3, rho_min=0.1, lr_max=0.1, lr_min=0.1)
    assert_same(scheduled, run(sampa.GSAM, rho=0.3))


def test_gsams_radius_follows_a_scheduler_at_the_next_update() -> None:
    model = normalized_mlp()
    base = torch.optim.SGD(model.parameters(), lr=0.2)
    optimizer = sampa.GSAM(base, rho=0.5, rho_min=0.1, lr_max=0.2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    lengths = []
    for batch in BATCHES[:3]:
        points = []

        def loss_fn(b: object, points: list[torch.Tensor] = points) -> sampa.Loss:
            points.append(flat(model))
            return loss_of(model)(BATCHES[0])

        optimizer.step(loss_fn, batch)
        scheduler.step()
        lengths.append((points[1] - points[0]).norm().item())
    assert lengths == pytest.approx([0.5, 0.3, 0.2], rel=1e-10)
