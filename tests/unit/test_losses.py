"""What loss_fn may return, BiSAM's bound, and the KL term of SAF and MESA, in numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

import sampa
from sampa.execution.evaluate import checked_loss
from sampa.pieces.losses import distillation
from tests.problems import BASES, cross_entropy_of
from tests.variants import BATCHES, normalized_mlp

Z = torch.tensor([[2.0, 0.0, -1.0]], dtype=torch.float64)


def bound(phi: sampa.ZeroOneBound, logits: Tensor, *targets: int) -> Tensor:
    return phi(sampa.Loss(logits=logits, targets=torch.tensor(targets)))


LOG, TANH = sampa.ZeroOneBound(), sampa.ZeroOneBound("tanh", mu=10.0, alpha=0.1)

# ---- BiSAM ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("target", "q"), [(0, 0.24295389), (1, 1.30420887), (2, 1.64278651)])
def test_log_bound_has_the_published_values(target: int, q: float) -> None:
    assert bound(LOG, Z, target).item() == pytest.approx(q, rel=0, abs=5e-9)


@pytest.mark.parametrize(("target", "q"), [(0, 0.01766724), (1, 0.21478876), (2, 0.30966425)])
def test_tanh_bound_has_the_published_values(target: int, q: float) -> None:
    assert bound(TANH, Z, target).item() == pytest.approx(q, rel=0, abs=5e-9)


def test_log_bound_has_the_published_gradient() -> None:
    z = Z.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(bound(LOG, z, 0), z)
    expected = torch.tensor([[-0.20263699, 0.14429335, 0.05834364]], dtype=torch.float64)
    torch.testing.assert_close(gradient, expected, rtol=0, atol=5e-9)


@pytest.mark.parametrize(("v", "phi"), [(0.0, 0.0), (1.0, 0.51011987), (-1.0, -0.73532566)])
def test_phi_has_the_published_values(v: float, phi: float) -> None:
    """For two classes, μ = 1 and logits (0, v): Q = log(exp φ(0) + exp φ(v)), and φ(0) = 0."""
    total = bound(LOG, torch.tensor([[0.0, v]], dtype=torch.float64), 0).item()
    assert math.log(math.exp(total) - 1) == pytest.approx(phi, rel=0, abs=5e-9)


@pytest.mark.parametrize("phi", [LOG, TANH], ids=["log", "tanh"])
@pytest.mark.parametrize("classes", [2, 10])
def test_bound_of_equal_logits_is_the_log_of_their_number(
    phi: sampa.ZeroOneBound, classes: int
) -> None:
    q = bound(phi, torch.full((1, classes), 3.0, dtype=torch.float64), 1)
    assert q.item() == pytest.approx(math.log(classes) / phi.mu, rel=1e-14)


@pytest.mark.parametrize("phi", [LOG, TANH], ids=["log", "tanh"])
def test_bound_ignores_a_constant_added_to_all_logits(phi: sampa.ZeroOneBound) -> None:
    assert bound(phi, Z + 4.0, 2).item() == pytest.approx(bound(phi, Z, 2).item(), rel=1e-14)


@pytest.mark.parametrize("phi", [LOG, TANH], ids=["log", "tanh"])
def test_gradient_of_the_bound_sums_to_zero(phi: sampa.ZeroOneBound) -> None:
    z = Z.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(bound(phi, z, 1), z)
    assert abs(gradient.sum().item()) < 1e-15


def test_bound_of_a_batch_is_the_mean_over_its_samples() -> None:
    both = bound(LOG, Z.repeat(2, 1), 0, 2).item()
    alone = (bound(LOG, Z, 0).item() + bound(LOG, Z, 2).item()) / 2
    assert both == pytest.approx(alone, rel=1e-15)


@pytest.mark.parametrize("scale", [1e3, -1e3])
def test_bound_is_finite_for_extreme_logits(scale: float) -> None:
    z = (Z * scale).requires_grad_()
    q = bound(LOG, z, 0)
    (gradient,) = torch.autograd.grad(q, z)
    assert math.isfinite(q.item())
    assert gradient.isfinite().all()


# ---- SAF and MESA --------------------------------------------------------------------------------

PAST = torch.zeros(1, 2, dtype=torch.float64)
NOW = torch.tensor([[5 * math.log(3), 0.0]], dtype=torch.float64)


def test_kl_has_the_published_value() -> None:
    assert distillation(PAST, NOW, 5.0, scale_tau2=False).item() == pytest.approx(
        0.14384104, rel=0, abs=5e-9
    )


def test_kl_times_the_squared_temperature_has_the_published_value() -> None:
    assert distillation(PAST, NOW, 5.0, scale_tau2=True).item() == pytest.approx(
        3.59602591, rel=0, abs=5e-9
    )


def test_kl_has_the_published_derivative() -> None:
    z = NOW.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(distillation(PAST, z, 5.0, scale_tau2=False), z)
    assert gradient[0, 0].item() == pytest.approx(0.05, rel=1e-12)


def test_kl_has_the_past_as_its_target() -> None:
    """Σ p_past (log p_past − log p_now), not the other way round."""
    p, q = torch.softmax(PAST, 1), torch.softmax(NOW / 5, 1)
    expected = (p * (p / q).log()).sum().item()
    assert distillation(PAST, NOW, 5.0, scale_tau2=False).item() == pytest.approx(expected)
    assert expected != pytest.approx((q * (q / p).log()).sum().item(), rel=0.05)


def test_kl_to_the_same_logits_is_zero_with_a_zero_gradient() -> None:
    z = NOW.clone().requires_grad_()
    kl = distillation(NOW, z, 5.0, scale_tau2=True)
    (gradient,) = torch.autograd.grad(kl, z)
    assert kl.item() == 0.0
    assert gradient.abs().max() < 1e-15


def test_kl_of_no_samples_is_zero() -> None:
    assert distillation(PAST[:0], NOW[:0], 5.0, scale_tau2=True).item() == 0.0


# ---- Loss ----------------------------------------------------------------------------------------


def test_value_may_be_left_out_if_the_samples_losses_are_given() -> None:
    per_sample = torch.tensor([1.0, 3.0], requires_grad=True)
    assert checked_loss(sampa.Loss(per_sample=per_sample)).value == 2.0


def test_loss_without_any_value_is_refused() -> None:
    with pytest.raises(ValueError, match="the training loss needs per_sample from loss_fn"):
        checked_loss(sampa.Loss(logits=Z))


def test_detached_loss_keeps_every_number_and_no_graph() -> None:
    fields = [torch.tensor([float(i)], requires_grad=True) for i in range(5)]
    detached = sampa.Loss(*fields).detached()
    kept = [detached.value, detached.per_sample, detached.logits, detached.targets, detached.index]
    assert [t.item() for t in kept if t is not None] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert not any(t.requires_grad for t in kept if t is not None)


NEEDY: dict[str, tuple[Callable[..., sampa.SharpnessAware], str]] = {
    "bisam": (sampa.BiSAM, r"BiSAM needs logits and targets from loss_fn, got only value"),
    "sampa+bisam": (sampa.METHODS["sampa+bisam"], r"BiSAM needs logits and targets"),
    "saf": (sampa.SAF, r"SAF needs logits and index from loss_fn, got only value"),
    "mesa": (partial(sampa.MESA, start_epoch=0), r"MESA needs logits from loss_fn, got only value"),
    "esam": (
        partial(sampa.ESAM, gamma=0.5),
        r"ESAM with gamma < 1 needs per_sample from loss_fn.*Loss\(loss, per_sample=...\)",
    ),
}


@pytest.mark.parametrize("name", NEEDY)
def test_a_plain_loss_is_refused_with_what_to_return(name: str) -> None:
    make, message = NEEDY[name]
    model = normalized_mlp()
    optimizer = make(BASES["sgd"](model.parameters()))
    optimizer.set_epoch(1)
    x, y, _ = BATCHES[0]
    with pytest.raises(ValueError, match=message):
        optimizer.step(cross_entropy_of(model), (x, y))


@pytest.mark.parametrize("make", [sampa.MESA, sampa.ESAM], ids=["mesa", "esam"])
def test_a_plain_loss_is_enough_while_nothing_more_is_needed(
    make: Callable[..., sampa.SharpnessAware],
) -> None:
    """MESA before its first epoch, ESAM without data selection."""
    model = normalized_mlp()
    x, y, _ = BATCHES[0]
    optimizer = make(BASES["sgd"](model.parameters()))
    assert optimizer.step(cross_entropy_of(model), (x, y)).isfinite()
