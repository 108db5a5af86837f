"""Sharpness against brute force on small nets, and what it leaves untouched."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import sampa
from sampa import flatness
from sampa.execution.randomness import derive_seed
from sampa.vectors.random import RandomNumbers
from tests.flatness.reference import batches, flat, flattened, joined, loss_at, loss_of, net
from tests.problems import image_batches, small_net, weights_of


class TwoWeights(nn.Module):
    """A curved loss of two weights, with a saddle and valleys."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([0.7, -0.4], dtype=torch.float64))

    def forward(self, batch: Tensor) -> Tensor:
        return value(self.w, batch)


def value(w: Tensor, batch: Tensor) -> Tensor:
    a, b = w[..., 0], w[..., 1]
    slopes = batch[:, None] if w.ndim > 1 else batch
    return (torch.sin(3 * a * slopes) + (a * b - 0.5).square() + 0.3 * b * slopes).mean(0)


SAMPLES = torch.tensor([0.5, 1.0, -0.8, 2.0], dtype=torch.float64)


def brute_force(model: TwoWeights, rho: float, p: float, adaptive: bool) -> float:
    """The maximum over a fine grid of the ball, its boundary included."""
    side = torch.linspace(-1, 1, 1001, dtype=torch.float64)
    u = torch.cartesian_prod(side, side)
    if p == 2:
        angles = torch.linspace(0, 2 * math.pi, 20001, dtype=torch.float64)
        u = torch.cat([u[u.norm(dim=1) <= 1], torch.stack([angles.cos(), angles.sin()], 1)])
    x = model.w.detach()
    c = x.abs() if adaptive else torch.ones_like(x)
    losses = value(x + rho * c * u, SAMPLES)
    return float(losses.max() - value(x, SAMPLES))


@pytest.mark.parametrize("rho", [0.05, 0.5])
@pytest.mark.parametrize("p", [2, math.inf])
@pytest.mark.parametrize("adaptive", [False, True])
def test_the_worst_case_equals_a_brute_force_maximum(rho: float, p: float, adaptive: bool) -> None:
    model = TwoWeights()
    found = flatness.sharpness(
        model, model, [SAMPLES], rho=rho, p=p, adaptive=adaptive, steps=60, restarts=4
    )
    expected = brute_force(model, rho, p, adaptive)
    # A grid of 1,000 steps misses a smooth maximum by its curvature times (ρ/500)².
    assert found.value == pytest.approx(expected, rel=1e-4)
    assert found.gradients == pytest.approx(5 * (60 + 1 / 3))


def test_one_step_is_the_sharpness_that_sam_sees() -> None:
    model, (batch, _) = net(), batches()
    found = flatness.sharpness(model, loss_of(model), [batch], rho=0.1)
    optimizer = sampa.SAM(torch.optim.SGD(model.parameters(), lr=0.0), rho=0.1)
    optimizer.step(loss_of(model), batch)
    assert optimizer.last is not None
    assert optimizer.last.sharpness == pytest.approx(found.value, rel=1e-6)  # SAM adds eps to ‖g‖


def test_adaptive_sharpness_of_one_step_is_what_asam_sees() -> None:
    model, (batch, _) = net(), batches()
    found = flatness.sharpness(model, loss_of(model), [batch], rho=0.1, adaptive=True)
    base = torch.optim.SGD(model.parameters(), lr=0.0)
    optimizer = sampa.ASAM(base, rho=0.1, eta=0.0, normalize_bias=True)
    optimizer.step(loss_of(model), batch)
    assert optimizer.last is not None
    assert optimizer.last.sharpness == pytest.approx(found.value, rel=1e-6)


def test_m_sharpness_is_the_mean_of_the_groups_own_maxima() -> None:
    model, data = net(), batches((7, 5))
    groups = [(x[i : i + 3], y[i : i + 3]) for x, y in data for i in range(0, len(y), 3)]
    each = [flatness.sharpness(model, loss_of(model), [g], rho=0.2, steps=3) for g in groups]
    sizes = [len(y) for _, y in groups]
    expected = sum(s.value * n for s, n in zip(each, sizes, strict=True)) / 12
    found = flatness.sharpness(model, loss_of(model), data, rho=0.2, steps=3, m=3)
    assert found.values == tuple(s.value for s in each)
    assert found.value == pytest.approx(expected, rel=1e-12)
    assert found.gradients == pytest.approx(3 + 1 / 3)
    by_batch = flatness.sharpness(model, loss_of(model), data, rho=0.2, m="batch")
    whole = flatness.sharpness(model, loss_of(model), data, rho=0.2)
    assert len(by_batch.values) == 2
    assert whole.value < by_batch.value < found.value


@pytest.mark.parametrize("adaptive", [False, True])
def test_the_average_is_that_over_explicit_draws(adaptive: bool) -> None:
    model, data = net(), batches()
    batch, x = joined(data), flat(model)
    random = RandomNumbers(derive_seed(7, "flatness", "sharpness"))
    c = x.abs() if adaptive else torch.ones_like(x)
    rises = []
    for draw in range(5):
        normal = flattened(random.normal(list(model.parameters()), draw))
        moved = x + c * 0.3 / 21**0.5 * normal
        rises.append(float(loss_at(model, moved, batch) - loss_at(model, x, batch)))
    found = flatness.sharpness(
        model, loss_of(model), data, rho=0.3, kind="average", adaptive=adaptive, draws=5, seed=7
    )
    assert found.value == pytest.approx(sum(rises) / 5, rel=1e-10)
    assert found.loss == pytest.approx(float(loss_at(model, x, batch)), rel=1e-12)
    assert found.gradients == pytest.approx(2)


def test_adaptive_sharpness_does_not_see_a_rescaling_that_changes_nothing() -> None:
    """ReLU(a x) b = ReLU(x) a b: the function is the same, plain sharpness is not."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 8, bias=False), nn.ReLU(), nn.Linear(8, 3, bias=False))
    data = batches((16,))
    model.double()

    def measured() -> list[float]:
        return [
            flatness.sharpness(
                model, loss_of(model), data, rho=0.1, p=p, adaptive=adaptive, steps=4
            ).value
            for adaptive, p in [(True, 2), (True, math.inf), (False, 2)]
        ]

    before = measured()
    with torch.no_grad():
        for i, factor in ((0, 8.0), (2, 0.125)):
            model.get_submodule(str(i)).get_parameter("weight").mul_(factor)
    after = measured()
    assert after[:2] == pytest.approx(before[:2], rel=1e-9)
    assert after[2] != pytest.approx(before[2], rel=0.1)


def test_normalized_logits_do_not_see_the_scale_of_the_logits() -> None:
    model, data = net(), batches()

    def scaled(factor: float) -> Any:
        def loss_fn(batch: tuple[Tensor, Tensor]) -> sampa.Loss:
            z = factor * model(batch[0])
            return sampa.Loss(F.cross_entropy(z, batch[1]), logits=z, targets=batch[1])

        return loss_fn

    small, large = (
        flatness.sharpness(model, scaled(f), data, rho=0.1, normalize_logits=True, adaptive=True)
        for f in (1.0, 100.0)
    )
    assert large.value == pytest.approx(small.value, rel=1e-9)
    z = model(joined(data)[0]).detach()
    z = z - z.mean(1, keepdim=True)
    expected = F.cross_entropy(z / z.norm(dim=1, keepdim=True), joined(data)[1])
    assert small.loss == pytest.approx(float(expected), rel=1e-12)
    with pytest.raises(ValueError, match="logit normalization needs logits and targets"):
        flatness.sharpness(model, lambda b: scaled(1.0)(b).value, data, normalize_logits=True)


def everything(model: nn.Module) -> list[Tensor]:
    return [*weights_of(model), *(b.clone() for b in model.buffers()), torch.get_rng_state()]


def test_model_gradients_and_generators_are_left_bit_for_bit() -> None:
    model, data = small_net(), list(image_batches(2))
    model(data[0][0]).sum().backward()
    model.conv.eval()  # a layer that someone froze stays so
    grads = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    before = everything(model)
    loss_fn = loss_of(model)
    for training in (False, True):
        flatness.sharpness(model, loss_fn, data, adaptive=True, steps=2, training=training)
        flatness.sharpness(model, loss_fn, data, kind="average", draws=2, training=training)
        flatness.hessian_eigenvalues(model, loss_fn, data, max_products=2, training=training)
        flatness.landscape(model, loss_fn, data, points=2, training=training)
    after = everything(model)
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    now = [p.grad for p in model.parameters() if p.grad is not None]
    assert all(torch.equal(a, b) for a, b in zip(grads, now, strict=True))
    assert model.training
    assert not model.conv.training


def test_a_failing_loss_leaves_the_weights_too() -> None:
    model, data = small_net(), list(image_batches(1))
    before, calls = everything(model), []

    def loss_fn(batch: tuple[Tensor, Tensor]) -> Tensor:
        calls.append(1)
        if len(calls) == 2:
            raise KeyError("data")
        return F.cross_entropy(model(batch[0]), batch[1])

    with pytest.raises(KeyError):
        flatness.sharpness(model, loss_fn, data, rho=1.0)
    assert all(torch.equal(a, b) for a, b in zip(before, everything(model), strict=True))
    assert model.training


def test_layers_behave_as_in_evaluation_unless_asked() -> None:
    model, data = small_net(), list(image_batches(1))
    found = flatness.sharpness(model, loss_of(model), data, rho=0.0)
    trained = flatness.sharpness(model, loss_of(model), data, rho=0.0, training=True)
    again = flatness.sharpness(model, loss_of(model), data, rho=0.0, training=True)
    with torch.no_grad():
        expected = F.cross_entropy(model.eval()(data[0][0]), data[0][1])
    assert found.loss == pytest.approx(float(expected), rel=1e-6)
    assert found.value == 0
    assert trained.loss == again.loss != found.loss  # the same dropout at every point
    assert trained.value == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rho": -1.0}, "rho must be finite and >= 0, got -1.0"),
        ({"kind": "best"}, "kind must be one of 'worst', 'average', got 'best'"),
        ({"p": 1}, "p must be 2 or infinity, got 1"),
        ({"steps": 0}, "steps must be >= 1, got 0"),
        ({"m": 0}, "m must be >= 1"),
        ({"adaptive": sampa.Adaptive()}, "every_parameter"),
    ],
)
def test_wrong_arguments_are_named(options: dict[str, Any], message: str) -> None:
    model, data = net(), batches()
    with pytest.raises(ValueError, match=message):
        flatness.sharpness(model, loss_of(model), data, **options)


def test_no_batches_are_refused() -> None:
    model = net()
    with pytest.raises(ValueError, match="batches must be at least one, got 'none'"):
        flatness.sharpness(model, loss_of(model), [])
