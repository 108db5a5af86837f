"""Several ascent steps: how far they lead, and how high."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sampa
from tests.problems import BASES, flat
from tests.variants import BATCHES, batch_norm_mlp, gradient_at, loss_of, normalized_mlp, points_of

RHO = 0.3


def ascent(batch_number: int = 0, **settings: Any) -> list[Tensor]:
    """The offsets x̃ − x of one step, the first (zero) included."""
    batch = BATCHES[batch_number : batch_number + 1]
    start, *points = points_of(sampa.MultiStepSAM, batch, rho=RHO, perturb_eps=0.0, **settings)[0]
    return [p - start for p in points]


@pytest.mark.parametrize("project", [False, True])
def test_k_steps_take_k_plus_one_gradients(project: bool) -> None:
    assert len(ascent(steps=4, project=project)) == 5


@pytest.mark.parametrize("project", [False, True])
@pytest.mark.parametrize("batch_number", range(4))
def test_no_step_leads_out_of_the_ball(project: bool, batch_number: int) -> None:
    for d in ascent(batch_number, steps=5, project=project):
        assert d.norm().item() <= RHO * (1 + 1e-14)


def test_projected_steps_end_on_the_sphere() -> None:
    assert ascent(steps=3, project=True)[-1].norm().item() == pytest.approx(RHO, rel=1e-14)


def test_each_step_goes_rho_over_k_along_the_gradient_where_it_stands() -> None:
    """d ← d + (ρ/K) ∇f(x+d) / ‖·‖."""
    start, d = flat(normalized_mlp()), torch.zeros(63, dtype=torch.float64)
    for actual in ascent(steps=4):
        torch.testing.assert_close(actual, d, rtol=0, atol=1e-15)
        g = gradient_at(start + d, BATCHES[0])
        d = d + RHO / 4 * g / g.norm()


def test_projected_steps_of_rho_are_shortened_to_rho() -> None:
    start, d = flat(normalized_mlp()), torch.zeros(63, dtype=torch.float64)
    for actual in ascent(steps=3, project=True):
        torch.testing.assert_close(actual, d, rtol=0, atol=1e-15)
        g = gradient_at(start + d, BATCHES[0])
        d = d + RHO * g / g.norm()
        d = d * min(1.0, RHO / d.norm().item())


class Curved(nn.Module):
    """½ Σ a x², convex."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.a = torch.rand(8, generator=generator, dtype=torch.float64) * 10
        self.x = nn.Parameter(torch.randn(8, generator=generator, dtype=torch.float64))

    def forward(self, batch: Tensor) -> Tensor:
        return 0.5 * (self.a * self.x.square()).sum()


def height(seed: int, steps: int) -> float:
    """The loss where the last gradient is taken."""
    model = Curved(seed)
    optimizer = sampa.MultiStepSAM(torch.optim.SGD(model.parameters(), lr=0.1), RHO, steps)
    optimizer.step(model, torch.zeros(1))
    assert optimizer.last is not None
    return optimizer.last.losses[-1]


@pytest.mark.parametrize("seed", range(10))
def test_more_steps_climb_no_lower_on_a_convex_quadratic(seed: int) -> None:
    """Provable: the Rayleigh quotient of the step's direction never falls."""
    one = height(seed, 1)
    assert all(height(seed, k) >= one for k in (2, 3, 7))


def test_on_a_linear_loss_every_k_ends_at_sams_point() -> None:
    points: list[Tensor] = []
    for make in (sampa.SAM, sampa.MultiStepSAM):
        model = nn.Linear(3, 1).double()
        nn.init.ones_(model.weight)
        nn.init.zeros_(model.bias)

        def loss_fn(x: Tensor, model: nn.Linear = model) -> Tensor:
            points.append(flat(model))
            return model(x).sum()

        x = torch.tensor([[1.0, -2.0, 3.0]], dtype=torch.float64)
        make(BASES["sgd"](model.parameters()), rho=RHO).step(loss_fn, x)
    torch.testing.assert_close(points[-1], points[1], rtol=0, atol=1e-15)


def test_groups_keep_their_own_radius_at_every_step() -> None:
    model = nn.ParameterList([torch.ones(1).double(), torch.ones(1).double()])
    groups = [{"params": [model[0]], "rho": 0.5}, {"params": [model[1]], "rho": 2.0}]
    points: list[Tensor] = []

    def loss_fn(batch: Tensor) -> Tensor:
        points.append(flat(model))
        return model[0].sum() + model[1].sum()

    sampa.MultiStepSAM(torch.optim.SGD(groups, lr=0.1), steps=2).step(loss_fn, torch.zeros(1))
    expected = torch.tensor([0.5, 2.0]).double() / 2**0.5
    torch.testing.assert_close(points[-1] - points[0], expected, rtol=1e-11, atol=0)


def test_a_zero_gradient_still_counts_its_batch_once() -> None:
    """Without a direction nothing is perturbed; BatchNorm must not see a second clean pass."""
    model = batch_norm_mlp()
    optimizer = sampa.MultiStepSAM(BASES["sgd"](model.parameters()))

    def loss_fn(batch: object) -> Tensor:
        value = loss_of(model)(BATCHES[0]).value
        assert value is not None
        return 0.0 * value

    optimizer.step(loss_fn, BATCHES[0])
    assert model[1].num_batches_tracked == 1
