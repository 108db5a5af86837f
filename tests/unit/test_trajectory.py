"""SAF and MESA: the KL term to earlier outputs, which records and which model it is taken from."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import sampa
from tests.problems import BASES, flat
from tests.variants import (
    BATCHES,
    Sample,
    assert_same,
    batch_norm_mlp,
    loss_of,
    normalized_mlp,
    run,
    training_loss,
)

TAU, LAM = 5.0, 0.3
TWO = BATCHES[:2]  # an epoch


def kl(past: Tensor, now: Tensor) -> Tensor:
    """mean_i KL(softmax(past/τ) ‖ softmax(now/τ)), written out."""
    p, log_q = F.softmax(past / TAU, 1), F.log_softmax(now / TAU, 1)
    return (p * (p.log() - log_q)).sum(1).mean()


def logits_at(point: Tensor, batch: Sample) -> Tensor:
    model = normalized_mlp()
    nn.utils.vector_to_parameters(point, model.parameters())
    return model(batch[0]).detach()


def step_towards(x: Tensor, batch: Sample, past: Tensor, strength: float) -> Tensor:
    """Plain SGD on the cross-entropy plus strength · KL(past ‖ now)."""
    model = normalized_mlp()
    nn.utils.vector_to_parameters(x, model.parameters())
    loss = loss_of(model)(batch)
    assert loss.logits is not None
    total = training_loss(loss) + strength * kl(past, loss.logits)
    gradients = torch.autograd.grad(total, list(model.parameters()))
    return x - 0.1 * torch.cat([g.flatten() for g in gradients])


saf = partial(sampa.SAF, lam=LAM, tau=TAU, start_epoch=0, gap=1)
mesa = partial(sampa.MESA, lam=LAM, tau=TAU, start_epoch=0, decay=0.6)

# ---- SAF -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("scale_tau2", "strength"), [(True, LAM * TAU**2), (False, LAM)])
def test_saf_pulls_towards_the_logits_of_one_epoch_ago(scale_tau2: bool, strength: float) -> None:
    path = run(partial(saf, scale_tau2=scale_tau2), TWO, "sgd", epochs=2)
    start = flat(normalized_mlp())
    past = logits_at(start, TWO[0])  # recorded at the very first step
    expected = step_towards(path[1], TWO[0], past, strength)
    torch.testing.assert_close(path[2], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("gap", [1, 2, 3])
def test_saf_uses_the_record_of_exactly_gap_epochs_ago(gap: int) -> None:
    """One batch an epoch: at step e the teacher is the model of step e − gap."""
    path = run(partial(saf, gap=gap, start_epoch=gap), TWO[:1], "sgd", epochs=gap + 3)
    points = [flat(normalized_mlp()), *path]
    for e in (gap + 1, gap + 2):
        past = logits_at(points[e - gap], TWO[0])
        expected = step_towards(points[e], TWO[0], past, LAM * TAU**2)
        torch.testing.assert_close(points[e + 1], expected, rtol=0, atol=1e-12)


def test_saf_acts_strictly_after_its_start_and_before_its_end() -> None:
    """E_start < e < E_end, counted from 0."""
    acting = run(partial(saf, start_epoch=1, end_epoch=3), TWO[:1], "sgd", epochs=4)
    points = [flat(normalized_mlp()), *acting]
    plain = [run_on(points[e]) for e in range(4)]
    same = [torch.equal(points[e + 1], plain[e]) for e in range(4)]
    assert same == [True, True, False, True]


def run_on(x: Tensor) -> Tensor:
    model = normalized_mlp()
    nn.utils.vector_to_parameters(x.clone(), model.parameters())
    sampa.Base(BASES["sgd"](model.parameters())).step(loss_of(model), TWO[0])
    return flat(model)


def train_saf(epochs: list[list[Sample]]) -> tuple[list[Tensor], sampa.SharpnessAware]:
    model = normalized_mlp()
    optimizer = saf(BASES["sgd"](model.parameters()))
    points = [flat(model)]
    for e, batches in enumerate(epochs):
        optimizer.set_epoch(e)
        for batch in batches:
            optimizer.step(loss_of(model), batch)
            points.append(flat(model))
    return points, optimizer


def test_saf_leaves_out_samples_without_a_record() -> None:
    """Only half of the batch was seen in the epoch before: half of the KL term is left."""
    half = tuple(t[:3] for t in TWO[0])
    points, _ = train_saf([[half], [TWO[0]]])
    past = logits_at(points[0], half)
    model = normalized_mlp()
    nn.utils.vector_to_parameters(points[1], model.parameters())
    loss = loss_of(model)(TWO[0])
    assert loss.logits is not None
    total = training_loss(loss) + LAM * TAU**2 * kl(past, loss.logits[:3]) / 2
    g = torch.cat([t.flatten() for t in torch.autograd.grad(total, list(model.parameters()))])
    torch.testing.assert_close(points[2], points[1] - 0.1 * g, rtol=0, atol=1e-12)


def test_saf_forgets_records_that_are_too_old() -> None:
    """Seen in epoch 1 and not in epoch 3: in epoch 4 its place still holds the older record."""
    points, _ = train_saf([[TWO[0]], [TWO[0]], [TWO[1]], [TWO[1]], [TWO[0]]])
    assert torch.equal(points[5], run_on(points[4]))


def test_saf_finds_records_whatever_the_order_of_the_samples() -> None:
    order = torch.tensor([4, 0, 5, 2, 1, 3])
    shuffled = tuple(t[order] for t in TWO[0])
    (_, _, plain), (_, _, mixed) = (train_saf([[TWO[0]], [b]])[0] for b in (TWO[0], shuffled))
    torch.testing.assert_close(plain, mixed, rtol=0, atol=1e-14)


def test_saf_records_grow_with_the_samples_seen() -> None:
    _, optimizer = train_saf([[TWO[0]], [TWO[1]]])
    assert optimizer._carried.method_state.epochs[1, 6:12].tolist() == [1] * 6


def test_saf_records_nothing_of_a_step_that_is_dropped() -> None:
    bad = (torch.full_like(TWO[0][0], math.nan), *TWO[0][1:])
    _, optimizer = train_saf([[TWO[0]], [bad]])
    assert optimizer.last is not None
    assert optimizer.last.skipped
    assert (optimizer._carried.method_state.epochs[1] == -1).all()
    assert torch.isfinite(optimizer._carried.method_state.logits).all()


def test_saf_refuses_a_start_before_its_first_complete_record() -> None:
    with pytest.raises(ValueError, match="start_epoch must be >= gap - 1 = 2, got 1"):
        sampa.SAF(BASES["sgd"](normalized_mlp().parameters()), gap=3, start_epoch=1)


# ---- MESA ----------------------------------------------------------------------------------------


def test_mesa_pulls_towards_the_averaged_model() -> None:
    """v ← decay v + (1−decay) x after every update from the first, also before it acts."""
    path = run(mesa, TWO, "sgd", epochs=2)
    start = flat(normalized_mlp())
    v = 0.6 * (0.6 * start + 0.4 * path[0]) + 0.4 * path[1]
    expected = step_towards(path[1], TWO[0], logits_at(v, TWO[0]), LAM * TAU**2)
    torch.testing.assert_close(path[2], expected, rtol=0, atol=1e-12)


def test_mesa_without_memory_has_itself_as_teacher_and_is_the_base() -> None:
    """decay = 0 and no dropout: the KL term is 0 with a gradient of rounding size."""
    actual = run(partial(mesa, decay=0.0), epochs=2)
    assert_same(actual, run(sampa.Base, epochs=2), atol=1e-12)


def test_mesa_with_full_memory_keeps_the_first_model_as_teacher() -> None:
    path = run(partial(mesa, decay=1.0), TWO, "sgd", epochs=2)
    past = logits_at(flat(normalized_mlp()), TWO[1])
    expected = step_towards(path[2], TWO[1], past, LAM * TAU**2)
    torch.testing.assert_close(path[3], expected, rtol=0, atol=1e-12)


def teacher_passes(net: nn.Sequential, **settings: Any) -> tuple[list[Any], sampa.SharpnessAware]:
    """(training mode, running mean) of BatchNorm at each forward pass of the second epoch."""
    optimizer = mesa(BASES["sgd"](net.parameters()), executor=sampa.Serial(net), **settings)
    seen: list[Any] = []
    bn = net[1]
    assert isinstance(bn, nn.BatchNorm1d)
    for e in range(2):
        optimizer.set_epoch(e)
        for batch in TWO:
            optimizer.step(loss_of(net), batch)
        if e == 0:
            bn.register_forward_pre_hook(
                lambda m, _: seen.append((m.training, m.get_buffer("running_mean").clone()))
            )
    return seen, optimizer


def test_teacher_of_mesa_runs_in_evaluation_mode() -> None:
    seen, _ = teacher_passes(batch_norm_mlp(dropout=0.5))
    assert [training for training, _ in seen] == [False, True, False, True]


def test_teacher_of_mesa_normalizes_with_averaged_statistics() -> None:
    net = batch_norm_mlp()
    seen, _ = teacher_passes(net)
    (_, averaged), (_, current) = seen[0], seen[1]
    means = [torch.zeros(6).double()]  # what BatchNorm had before each step of the first epoch
    twin = batch_norm_mlp()
    optimizer = sampa.Base(BASES["sgd"](twin.parameters()))
    for batch in TWO:
        optimizer.step(loss_of(twin), batch)
        means.append(twin.get_buffer("1.running_mean").clone())
    expected = 0.6 * (0.6 * means[0] + 0.4 * means[1]) + 0.4 * means[2]
    torch.testing.assert_close(averaged, expected, rtol=0, atol=1e-15)
    assert torch.equal(current, means[2])


def test_teacher_of_mesa_sees_no_dropout() -> None:
    """Its first pass lets everything through, the training pass next to nothing."""
    net = batch_norm_mlp(dropout=0.999)
    outputs: list[Tensor] = []
    optimizer = mesa(BASES["sgd"](net.parameters()), executor=sampa.Serial(net))
    optimizer.set_epoch(1)
    net[3].register_forward_hook(lambda *args: outputs.append(args[2]))
    optimizer.step(loss_of(net), TWO[0])
    assert (outputs[0] != 0).all()
    assert (outputs[1] == 0).any()


def test_mesa_keeps_one_teacher_for_each_micro_batch() -> None:
    whole = run(mesa, TWO, epochs=2)
    parts = run(mesa, TWO, epochs=2, accumulate=2)
    assert_same(parts, whole, atol=1e-12)
