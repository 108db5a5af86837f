"""Momentum-SAM: one gradient, at weights moved against the base optimizer's momentum."""

from __future__ import annotations

from functools import partial
from typing import Literal

import pytest
import torch
from torch import Tensor, nn

import sampa
from tests.problems import BASES, flat
from tests.variants import BATCHES, loss_of, normalized_mlp, points_of, run

RHO = 0.3


def momenta(base: torch.optim.Optimizer, key: str) -> Tensor:
    return torch.cat([s[key].flatten() for s in base.state.values()])


@pytest.mark.parametrize(
    ("base", "key"), [("sgd-momentum", "momentum_buffer"), ("adamw", "exp_avg")]
)
def test_perturbation_is_against_the_momentum_before_the_step(base: str, key: str) -> None:
    """x̃_t = x_t − ρ v_t / ‖v_t‖, with Adam's first moment as it is."""
    model = normalized_mlp()
    torch_base = BASES[base](model.parameters())
    optimizer = sampa.MomentumSAM(torch_base, rho=RHO, perturb_eps=0.0)
    points: list[Tensor] = []

    def loss_fn(batch: object) -> sampa.Loss:
        points.append(flat(model))
        return loss_of(model)(BATCHES[0])

    optimizer.step(loss_fn, BATCHES[0])
    for batch in BATCHES[1:]:
        x, v = flat(model), momenta(torch_base, key)
        optimizer.step(loss_fn, batch)
        torch.testing.assert_close(points[-1], x - RHO * v / v.norm(), rtol=0, atol=1e-15)


def test_one_gradient_a_step() -> None:
    assert [len(points) - 1 for points in points_of(sampa.MomentumSAM, BATCHES)] == [1] * 6


def test_a_base_optimizer_without_momentum_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"needs a base optimizer with momentum.*SGD with momentum"
    ):
        run(sampa.MomentumSAM, base="sgd")


def test_decay_at_the_perturbed_weights_differs_by_the_decay_of_the_offset() -> None:
    """G + wd (x̃ − x): the second update, seen from the first momentum."""
    paths = [
        run(sampa.MomentumSAM, BATCHES[:2], rho=RHO, decay_at=d) for d in ("clean", "perturbed")
    ]
    start = flat(normalized_mlp())
    v = (start - paths[0][0]) / 0.1  # b_1 = g + wd x, so that x_1 = x_0 − η b_1
    expected = -0.1 * 0.01 * (-RHO * v / v.norm())
    torch.testing.assert_close(paths[1][1] - paths[0][1], expected, rtol=0, atol=1e-13)


class Half(nn.Module):
    """`b` takes part in the first batch only."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.ones(3, dtype=torch.float64))
        self.b = nn.Parameter(torch.ones(2, dtype=torch.float64))

    def forward(self, used: Tensor) -> Tensor:
        loss = self.a.square().sum()
        return loss + self.b.square().sum() if used else loss


@pytest.mark.parametrize("decay_at", ["clean", "perturbed", "after"])
def test_a_weight_without_a_gradient_is_left_alone(
    decay_at: Literal["clean", "perturbed", "after"],
) -> None:
    """AdamW does not touch it; the decay that Momentum-SAM moves must not either."""
    model = Half()
    base = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
    optimizer = partial(sampa.MomentumSAM, decay_at=decay_at)(base)
    optimizer.step(model, torch.tensor(True))
    before = model.b.detach().clone()
    optimizer.step(model, torch.tensor(False))
    assert torch.equal(model.b, before)
