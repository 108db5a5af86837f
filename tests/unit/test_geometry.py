"""Geometries: how long a move is, measured how, and which weights it leaves alone."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sampa
from sampa.pieces.geometry import along, every_parameter, is_not_normalization, is_weight
from sampa.vectors.vector import Vector
from tests.problems import BASES
from tests.variants import (
    BATCHES,
    batch_norm_mlp,
    context,
    entries,
    loss_of,
    moved,
    norm,
    nothing,
    points_of,
    vector,
)

NAMES = ["conv.weight", "fc.weight", "fc.bias", "norm.weight"]
generator = torch.Generator().manual_seed(0)
SHAPES = [(2, 3, 3, 3), (4, 5), (4,), (6,)]
X = [torch.randn(s, generator=generator, dtype=torch.float64) for s in SHAPES]
G = Vector([torch.randn(s, generator=generator, dtype=torch.float64) for s in SHAPES])
RHO = 0.3
ROUNDING = 1e-14  # relative: norms over some eighty float64 numbers


def offsets(geometry: Any, rho: float = RHO, g: Vector = G) -> list[Tensor]:
    return moved(geometry(context(X, rho, names=NAMES), g), X)


# ---- ASAM ----------------------------------------------------------------------------------------


def filter_norm(w: Tensor) -> Tensor:
    return w.flatten(1).norm(dim=1).view(-1, 1, 1, 1).expand_as(w)


OPERATORS = {
    "element": [X[0].abs(), X[1].abs(), X[3].abs()],
    "filter": [filter_norm(X[0]), X[1].abs(), X[3].abs()],
    "layer": [torch.full_like(w, w.norm().item()) for w in (X[0], X[1], X[3])],
}


@pytest.mark.parametrize("eta", [0.0, 0.01])
@pytest.mark.parametrize("operator", OPERATORS)
def test_adaptive_move_has_length_rho_in_units_of_the_weights(operator: Any, eta: float) -> None:
    """‖(x̃ − x) / T‖ = ρ, with T written down by hand and 1 on the bias."""
    conv, fc, weight = (t + eta for t in OPERATORS[operator])
    T = [conv, fc, torch.ones_like(X[2]), weight]
    e = offsets(sampa.Adaptive(eta=eta, operator=operator))
    assert norm(a / t for a, t in zip(e, T, strict=True)) == pytest.approx(RHO, rel=ROUNDING)


def test_adaptive_move_is_along_the_gradient_scaled_twice() -> None:
    e = offsets(sampa.Adaptive(eta=0.0))
    step = X[1].square() * entries(G)[1]
    torch.testing.assert_close(e[1] / e[1].norm(), step / step.norm(), rtol=0, atol=1e-14)


def test_adaptive_move_for_p_infinity_has_rho_of_each_weight() -> None:
    """ρ T sign(g)."""
    e = offsets(sampa.Adaptive(eta=0.01, p=math.inf))
    expected = RHO * (X[1].abs() + 0.01) * entries(G)[1].sign()
    torch.testing.assert_close(e[1], expected, rtol=1e-13, atol=0)


def test_a_zero_weight_is_not_perturbed_without_eta() -> None:
    x = [torch.tensor([0.0, 2.0], dtype=torch.float64)]
    (e,) = moved(sampa.Adaptive(eta=0.0)(context(x, RHO, names=["weight"]), vector([1.0, 1.0])), x)
    assert e.tolist() == [0.0, pytest.approx(2 * RHO)]


def test_a_zero_weight_is_perturbed_with_eta() -> None:
    x = [torch.zeros(2, dtype=torch.float64)]
    (e,) = moved(sampa.Adaptive()(context(x, RHO, names=["weight"]), vector([1.0, 0.0])), x)
    assert e[0].item() == pytest.approx(0.01 * RHO)


def test_biases_are_not_scaled_by_default() -> None:
    scaled = offsets(sampa.Adaptive(eta=0.0, select=every_parameter))[2] / entries(G)[2]
    plain = offsets(sampa.Adaptive(eta=0.0))[2] / entries(G)[2]
    assert (plain - plain[0]).abs().max() < 1e-14  # the same factor for each entry
    assert (scaled - scaled[0]).abs().max() > 1e-3


def test_normalize_bias_scales_biases_too() -> None:
    (start, _, point) = points_of(sampa.ASAM, normalize_bias=True, eta=0.0)[0]
    zero = (start == 0).nonzero().flatten()  # the LayerNorm's biases start at 0
    assert len(zero) == 6
    assert torch.equal(point[zero], start[zero])


class TwoLayers(nn.Module):
    """f(w₁ c, w₂ / c) = f(w₁, w₂)."""

    def __init__(self, c: float) -> None:
        super().__init__()
        self.weight_1 = nn.Parameter(torch.tensor([0.5, -1.5, 2.0], dtype=torch.float64) * c)
        self.weight_2 = nn.Parameter(torch.tensor([0.7, 1.1], dtype=torch.float64) / c)

    def forward(self, batch: Tensor) -> Tensor:
        return (torch.outer(self.weight_2, self.weight_1) @ batch - 1).square().sum()


def perturbed_loss(c: float, geometry: Any) -> float:
    model = TwoLayers(c)
    base = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = sampa.SAM(base, rho=RHO, geometry=geometry, executor=sampa.Serial(model))
    optimizer.step(model, torch.tensor([1.0, 2.0, -1.0], dtype=torch.float64))
    assert optimizer.last is not None
    return optimizer.last.losses[1]


@pytest.mark.parametrize("c", [0.1, 7.0])
def test_adaptive_sharpness_does_not_depend_on_the_scale_of_the_layers(c: float) -> None:
    adaptive = sampa.Adaptive(eta=0.0)
    assert perturbed_loss(c, adaptive) == pytest.approx(perturbed_loss(1.0, adaptive), rel=1e-12)


def test_plain_sharpness_does_depend_on_the_scale_of_the_layers() -> None:
    assert abs(perturbed_loss(7.0, sampa.Sphere()) - perturbed_loss(1.0, sampa.Sphere())) > 0.1


@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3, 4, 5), (2, 3, 2, 2, 2)])
def test_filter_operator_knows_convolutions_of_every_dimension(shape: tuple[int, ...]) -> None:
    w = torch.randn(shape, dtype=torch.float64)
    g = Vector([torch.ones_like(w)])
    geometry = sampa.Adaptive(eta=0.0, operator="filter")
    (e,) = moved(geometry(context([w], RHO, names=["weight"]), g), [w])
    assert (e - e.flatten(1)[:, 0].view(-1, *[1] * (w.ndim - 1))).abs().max() < 1e-14


# ---- Fisher-SAM ----------------------------------------------------------------------------------


@pytest.mark.parametrize("eta", [0.0, 1.0, 30.0])
def test_fisher_move_lies_on_the_ellipsoid(eta: float) -> None:
    """Σ (1 + η g²) e² = γ²."""
    e = offsets(sampa.FisherBall(eta))
    total = sum(
        ((1 + eta * g * g) * a * a).sum().item() for a, g in zip(e, entries(G), strict=True)
    )
    assert math.sqrt(total) == pytest.approx(RHO, rel=ROUNDING)


def test_fisher_move_is_no_longer_than_gamma() -> None:
    assert norm(offsets(sampa.FisherBall(2.0))) < RHO


def test_fisher_move_climbs_most_of_all_points_of_the_ellipsoid() -> None:
    """The maximizer of ⟨g, e⟩, against random points on the same ellipsoid and near it."""
    g = torch.cat([t.flatten() for t in G if t is not None])
    best = torch.cat([e.flatten() for e in offsets(sampa.FisherBall(1.0))])
    noise = torch.randn(200, len(g), generator=generator, dtype=torch.float64)
    for e in (*noise, *(best + 1e-3 * noise)):
        on_ellipsoid = e * RHO / ((1 + g * g) * e * e).sum().sqrt()
        assert torch.dot(g, on_ellipsoid) < torch.dot(g, best) * (1 + 1e-14)


# ---- SAM-ON, and masks ---------------------------------------------------------------------------


def test_only_some_tensors_are_moved_and_count_in_the_norm() -> None:
    e = offsets(sampa.Only(lambda p: p.is_normalization))
    assert norm(e) == pytest.approx(RHO, rel=ROUNDING)
    assert norm(e[:3]) == 0.0


def test_asam_on_norms_measures_in_units_of_those_weights() -> None:
    e = offsets(sampa.OnNorms(inside=sampa.Adaptive(eta=0.0)))
    assert (e[3] / X[3]).norm().item() == pytest.approx(RHO, rel=ROUNDING)


def test_sam_on_leaves_other_weights_bitwise_alone_at_the_second_forward() -> None:
    start, clean, perturbed = points_of(sampa.SAMON)[0]
    assert torch.equal(clean, start)
    changed = (perturbed != start).nonzero().flatten()
    assert changed.min() >= 30  # of 63 weights, the LayerNorm has numbers 30 to 41
    assert changed.max() < 42
    assert len(changed) == 12
    # eps = 1e-12 shortens by 1e-11 at most; the gradient there has a norm of about 0.1.
    assert (perturbed - start).norm().item() == pytest.approx(0.5, rel=1e-10)


def test_sam_on_finds_batch_norm_without_being_given_the_model() -> None:
    model = batch_norm_mlp()
    seen: list[list[Tensor]] = []

    def loss_fn(batch: Any) -> sampa.Loss:
        seen.append([p.detach().clone() for p in model.parameters()])
        return loss_of(model)(batch)

    sampa.SAMON(BASES["sgd"](model.parameters())).step(loss_fn, BATCHES[0])
    same = [torch.equal(a, b) for a, b in zip(*seen, strict=True)]
    assert same == [True, True, False, False, True, True]


def test_the_opposite_of_sam_on_perturbs_all_but_the_normalization_layers() -> None:
    start, _, perturbed = points_of(sampa.SAMON, select=is_not_normalization)[0]
    assert torch.equal((perturbed != start).nonzero().flatten()[[29, 30]], torch.tensor([29, 42]))


@pytest.mark.parametrize("with_model", [True, False])
def test_sam_on_without_a_normalization_layer_is_refused(with_model: bool) -> None:
    model = nn.Linear(4, 3).double()
    executor = sampa.Serial(model) if with_model else None
    optimizer = sampa.SAMON(BASES["sgd"](model.parameters()), executor=executor)
    with pytest.raises(ValueError, match="select must be true for at least one parameter"):
        optimizer.step(loss_of(model), BATCHES[0])


def test_first_pass_of_sam_on_computes_no_other_gradients() -> None:
    model = batch_norm_mlp()
    wanted: list[list[bool]] = []

    def loss_fn(batch: Any) -> sampa.Loss:
        wanted.append([p.requires_grad for p in model.parameters()])
        return loss_of(model)(batch)

    base = BASES["sgd"](model.parameters())
    sampa.SAMON(base, executor=sampa.Serial(model)).step(loss_fn, BATCHES[0])
    assert wanted == [[False, False, True, True, False, False], [True] * 6]


def test_masked_move_is_shorter_by_the_masked_share_of_the_gradient() -> None:
    """‖x̃ − x‖ = ρ ‖g ⊙ m‖ / ‖g‖."""
    mask = Vector([(t > 0.2).double() for t in G if t is not None])
    e = offsets(sampa.Masked(mask))
    masked = [g * m for g, m in zip(entries(G), entries(mask), strict=True)]
    assert norm(e) == pytest.approx(float(RHO * norm(masked) / G.norm), rel=ROUNDING)


def test_masked_move_is_zero_off_the_mask() -> None:
    mask = Vector([(t > 0.2).double() for t in G if t is not None])
    pairs = zip(offsets(sampa.Masked(mask)), mask, strict=True)
    assert all(bool((e[m == 0] == 0).all()) for e, m in pairs)


# ---- what all share ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "geometry",
    [sampa.Sphere(), sampa.FisherBall(), sampa.Only(is_weight), sampa.Adaptive(select=nothing)],
    ids=["sphere", "fisher", "only", "adaptive"],
)
def test_direction_of_length_zero_moves_nothing(geometry: Any) -> None:
    move = geometry(context(X, RHO, names=NAMES), G.map_elements(torch.zeros_like))
    assert norm(moved(move, X)) == 0.0


def test_each_tensor_is_moved_by_the_radius_of_its_group() -> None:
    v = vector([3.0], [4.0])
    x = [torch.zeros(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)]
    e = moved(along(context(x, [0.5, 5.0]), v, v.norm), x)
    assert [t.item() for t in e] == pytest.approx([0.5 * 3 / 5, 5.0 * 4 / 5], rel=ROUNDING)


def test_selecting_by_layer_needs_the_layers() -> None:
    """Weights that are used without running their module cannot be told apart."""
    model = nn.Linear(4, 3).double()
    optimizer = sampa.ASAM(BASES["sgd"](model.parameters()))
    with pytest.raises(RuntimeError, match=r"selects parameters by their layer.*distribute\(model"):
        optimizer.step(lambda b: (b[0] @ model.weight.T).square().mean(), BATCHES[0])
