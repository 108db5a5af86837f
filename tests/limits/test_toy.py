"""The paper's toy problem f(x) = ‖x‖² in one dimension, with η = ρ = 0.1 and x_0 = 1.

Long-run behavior has closed forms, and reproduces the ranking of the paper's toy figure: SAM cycles
close to 0, SAMPa stays as close as that, OptSAM goes somewhere else, RandSAM keeps wandering.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sampa
from tests.problems import watched

LR = RHO = 0.1
NO_BATCH = torch.zeros(1)  # the problem has no data


class Square(nn.Module):
    def __init__(self, start: float, size: int = 1) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.full((size,), start, dtype=torch.float64))

    def forward(self, batch: Tensor) -> Tensor:
        return self.x.square().sum()


def iterates(
    make: Callable[..., sampa.SharpnessAware], updates: int, start: float = 1.0, **settings: Any
) -> list[float]:
    """x_0, x_1, ..., x_updates."""
    model = Square(start)
    optimizer = make(
        torch.optim.SGD(model.parameters(), lr=LR), perturb_eps=0.0, seed=0, **settings
    )
    path = [model.x.item()]
    while len(path) <= updates:
        optimizer.step(model, NO_BATCH)
        assert optimizer.last is not None
        if optimizer.last.updated:
            path.append(model.x.item())
    return path


def test_sam_ends_in_its_two_cycle() -> None:
    """±η ρ / (1 − η); the distance to it shrinks by 1 − 2η a step, so 200 steps reach 1e-15."""
    cycle = LR * RHO / (1 - LR)
    tail = iterates(sampa.SAM, 200, rho=RHO)[-4:]
    assert [abs(x) for x in tail] == pytest.approx([cycle] * 4, rel=0, abs=1e-15)
    assert all(a * b < 0 for a, b in pairwise(tail))


def test_sam_cycle_has_the_published_size() -> None:
    assert abs(iterates(sampa.SAM, 200, rho=RHO)[-1]) == pytest.approx(0.0111111, abs=1e-7)


def test_sampa_zero_ends_in_its_four_cycle() -> None:
    tail = iterates(sampa.SAMPa, 300, rho=RHO, lam=0.0)[-4:]
    expected = [-0.02195122, -0.00243902, 0.00243902, 0.02195122]
    assert sorted(tail) == pytest.approx(expected, rel=0, abs=1e-8)


@pytest.mark.parametrize("start", [1.0, -0.37, 0.0123])
def test_sampa_zero_stays_within_twice_sams_distance(start: float) -> None:
    tail = iterates(sampa.SAMPa, 300, start=start, rho=RHO, lam=0.0)[-100:]
    assert max(map(abs, tail)) <= 0.022


def test_sampa_one_tends_to_zero() -> None:
    assert abs(iterates(sampa.SAMPa, 300, rho=RHO, lam=1.0)[-1]) < 1e-12


def test_optgd_tends_to_zero() -> None:
    assert abs(iterates(sampa.OptGD, 300)[-1]) < 1e-12


def test_optsam_tends_to_minus_rho() -> None:
    """Not to the minimum: the negative result of the paper."""
    assert iterates(sampa.OptSAM, 200, rho=RHO)[-1] == pytest.approx(-RHO, rel=0, abs=1e-15)


def test_optsam_contracts_towards_minus_rho_exactly() -> None:
    """x_{t+1} + ρ = (1 − 2η)(x_t + ρ) from the first perturbed update on."""
    path = iterates(sampa.OptSAM, 20, rho=RHO)
    for x, x_next in pairwise(path[1:]):
        assert x_next + RHO == pytest.approx((1 - 2 * LR) * (x + RHO), rel=0, abs=1e-15)


def test_randsam_wanders_three_times_as_far_as_sam() -> None:
    """RMS distance = ρ √(η / (1 − η)) = 0.0333, in any number of dimensions d.

    A coordinate is an AR(1) process with φ = 0.8: over n steps the RMS has a relative deviation of
    √((1 + φ²) / (2 (1 − φ²) n d)) = 0.75 % for n d = 40,000. The seed is fixed; 2.3 % is three of
    those.
    """
    model = Square(1.0, size=100)
    base = torch.optim.SGD(model.parameters(), lr=LR)
    optimizer = sampa.RandSAM(base, rho=RHO, perturb_eps=0.0, seed=0)
    squares: list[float] = []
    for _ in range(500):
        optimizer.step(model, NO_BATCH)
        squares.append(model(NO_BATCH).item())
    rms = math.sqrt(sum(squares[100:]) / 400)
    assert rms == pytest.approx(RHO * math.sqrt(LR / (1 - LR)), rel=0.023)


def test_sampa_takes_the_published_first_steps() -> None:
    path = iterates(sampa.SAMPa, 3, rho=RHO, lam=0.2)
    assert path[1:] == pytest.approx([0.792, 0.624, 0.488256], rel=0, abs=1e-15)


def test_sampa_zero_takes_the_published_first_steps() -> None:
    path = iterates(sampa.SAMPa, 3, rho=RHO, lam=0.0)
    assert path[1:] == pytest.approx([0.78, 0.604, 0.4632], rel=0, abs=1e-15)


def test_sampa_looks_ahead_to_the_published_points() -> None:
    model = Square(1.0)
    optimizer = sampa.SAMPa(
        torch.optim.SGD(model.parameters(), lr=LR), rho=RHO, lam=0.2, perturb_eps=0.0
    )
    loss_fn, points = watched(model, model)
    batches = [NO_BATCH.clone() for _ in range(4)]
    for batch in batches:
        optimizer.step(loss_fn, batch)
    y = [points.on(batch)[0].item() for batch in batches[1:]]
    assert y == pytest.approx([0.8, 0.632, 0.4976], rel=0, abs=1e-15)
