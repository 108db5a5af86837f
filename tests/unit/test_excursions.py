"""Leaving x_t in place, and coming back to it bit for bit."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import sampa
from sampa.execution.evaluate import Excursions
from sampa.vectors.vector import Weights
from tests.problems import (
    Batch,
    cross_entropy_of,
    same_bits,
    tiny_mlp,
    vector_batches,
    weights_of,
)

WIDTHS = {"aligned": 16, "aligned in half precision": 32, "unaligned": 5}


def mlp(width: int, dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 3)).to(dtype)


def addresses(model: nn.Module) -> list[int]:
    return [p.data_ptr() for p in model.parameters()]


def aliases(model: nn.Module) -> list[Tensor]:
    return [p.data for p in model.parameters()]


def one_further(weights: Weights) -> None:
    torch._foreach_add_(list(weights), 1.0)


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_who_looks_at_the_memory_of_the_weights_sees_them_move_and_come_back(width: int) -> None:
    model = mlp(width)
    seen = aliases(model)
    home, before = addresses(model), weights_of(model)
    with Excursions().to(one_further, list(model.parameters())):
        assert addresses(model) == home
        assert same_bits(seen, [w + 1 for w in before])
    assert addresses(model) == home
    assert same_bits(seen, before)


def test_a_frozen_weight_is_neither_copied_nor_written() -> None:
    model = mlp(16)
    model[0].weight.requires_grad_(False)
    version = model[0].weight._version
    with Excursions().to(lambda weights: None, list(model.parameters())):
        pass
    assert model[0].weight._version == version


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_a_graph_of_another_point_is_refused_and_not_differentiated_wrongly(width: int) -> None:
    model = mlp(width)
    kept: list[Tensor] = []

    def loss_fn(batch: Batch) -> Tensor:
        kept.append(model.get_parameter("0.weight").pow(3).sum())
        loss = cross_entropy_of(model)(batch)
        return loss if len(kept) == 1 else loss + kept[0]

    optimizer = sampa.SAM(torch.optim.SGD(model.parameters(), lr=0.1), rho=0.5)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        optimizer.step(loss_fn, vector_batches(1, dtype=torch.float32)[0])


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_each_group_moves_by_its_own_radius(width: int) -> None:
    model = mlp(width)
    before = weights_of(model)
    groups = [
        {"params": model[0].parameters(), "rho": 0.0},
        {"params": model[2].parameters(), "rho": 0.5},
    ]
    points: list[list[Tensor]] = []

    def loss_fn(batch: Batch) -> Tensor:
        points.append(weights_of(model))
        return cross_entropy_of(model)(batch)

    sampa.SAM(torch.optim.SGD(groups, lr=0.1)).step(
        loss_fn, vector_batches(1, dtype=torch.float32)[0]
    )
    assert same_bits(points[1][:2], before[:2])
    assert not any(same_bits(a, b) for a, b in zip(points[1][2:], before[2:], strict=True))


def test_weights_come_back_when_the_loss_fails() -> None:
    model = mlp(16)
    home, before = addresses(model), weights_of(model)
    optimizer = sampa.SAM(torch.optim.SGD(model.parameters(), lr=0.1))
    calls: list[Batch] = []

    def loss_fn(batch: Batch) -> Tensor:
        calls.append(batch)
        if len(calls) == 2:
            raise KeyError
        return cross_entropy_of(model)(batch)

    with pytest.raises(KeyError):
        optimizer.step(loss_fn, vector_batches(1, dtype=torch.float32)[0])
    assert addresses(model) == home
    assert same_bits(weights_of(model), before)


def test_an_optimizer_that_replaces_the_weights_memory_comes_back_too() -> None:
    class Replacing(torch.optim.SGD):
        def step(self, closure: None = None) -> None:
            for p in self.param_groups[0]["params"]:
                p.data = p.data - 0.1 * p.grad

    def trained(base: type[torch.optim.SGD]) -> list[Tensor]:
        model = tiny_mlp()
        optimizer = sampa.SAMPa(base(model.parameters(), lr=0.1), lam=0.2)
        for batch in vector_batches(4):
            optimizer.step(cross_entropy_of(model), batch)
        return weights_of(model)

    for ours, plain in zip(trained(Replacing), trained(torch.optim.SGD), strict=True):
        torch.testing.assert_close(ours, plain, rtol=0, atol=1e-15)
