"""Options that give the published code's form where it differs from the paper's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import sampa
from sampa.methods.looksam import ReuseFlatDirection
from sampa.pieces.combines import SurrogateGap
from sampa.vectors.vector import dot
from tests.problems import QUADRATIC_BATCHES, Quadratic, flat, sgd, trajectory


def vector(*tensors: list[float]) -> sampa.Vector:
    return sampa.Vector([torch.tensor(t, dtype=torch.float64) for t in tensors])


def test_looksam_per_tensor_keeps_each_tensors_flat_direction_orthogonal() -> None:
    g, g_tilde = vector([1.0, 2.0], [3.0, 1.0]), vector([2.0, 1.0], [1.0, 4.0])
    flat_direction = ReuseFlatDirection(0.7, per_tensor=True).remember(g, g_tilde)
    assert flat_direction is not None
    for part, clean in zip(flat_direction, g, strict=True):
        assert part is not None
        assert clean is not None
        assert torch.dot(part, clean).item() == pytest.approx(0, abs=1e-12)


def test_looksam_per_tensor_adds_alpha_times_each_tensors_norm() -> None:
    g, flat_direction = vector([3.0, 4.0], [0.0, 2.0]), vector([0.0, 1.0], [5.0, 0.0])
    reused = ReuseFlatDirection(alpha=0.5, per_tensor=True)(g, flat_direction)
    expected = [[3.0, 4.0 + 0.5 * 5.0], [0.5 * 2.0, 2.0]]
    assert [t.tolist() for t in reused if t is not None] == expected


def test_looksam_with_one_tensor_is_the_same_per_tensor_and_global() -> None:
    g, g_tilde = vector([1.0, 2.0, -1.0]), vector([2.0, 1.0, 0.5])
    forms = [ReuseFlatDirection(0.7, per_tensor=choice) for choice in (True, False)]
    results = [form(g, form.remember(g, g_tilde)) for form in forms]
    assert torch.equal(*[r.tensors[0] for r in results if r.tensors[0] is not None])


def test_gsams_second_form_adds_the_perturbed_gradients_orthogonal_part() -> None:
    g, g_tilde = vector([1.0, 0.0]), vector([2.0, 3.0])
    combined = SurrogateGap(alpha=0.5, minimize_fp=False)(g, g_tilde)
    assert [t.tolist() for t in combined if t is not None] == [[1.0, 1.5]]
    assert dot(sampa.add(combined, g, alpha=-1.0), g) == 0


def test_euclidean_fisher_sam_moves_by_gamma() -> None:
    model, seen = Quadratic(), []
    optimizer = sampa.FisherSAM(sgd(model), gamma=0.3, euclidean=True, perturb_eps=0.0)

    def loss_fn(batch: object) -> torch.Tensor:
        seen.append(flat(model))
        return model(batch)

    optimizer.step(loss_fn, QUADRATIC_BATCHES[0])
    assert (seen[1] - seen[0]).norm().item() == pytest.approx(0.3, rel=1e-12)


def test_rst_takes_base_steps_only_while_it_warms_up() -> None:
    model = Quadratic()
    optimizer = sampa.RST(sgd(model), p=1.0, warmup=2)
    rounds = []
    for batch in QUADRATIC_BATCHES:
        optimizer.step(model, batch)
        assert optimizer.last is not None
        rounds.append(optimizer.last.rounds)
    assert rounds == [1, 1, 2, 2]


def test_normalized_g_rst_is_the_normalized_penalty_where_the_coin_falls() -> None:
    ends = []
    for make in (sampa.RST, sampa.GradNormPenalty):
        model = Quadratic()
        own: dict[str, Any] = (
            {"coins": [True] * 3, "gamma": 0.8} if make is sampa.RST else {"alpha": 0.8}
        )
        optimizer = make(sgd(model), rho=0.1, normalized=True, **own)
        ends.append(trajectory(optimizer, model, QUADRATIC_BATCHES[:3])[-1])
    assert torch.equal(*ends)


@pytest.mark.parametrize("make", [sampa.MicroBatchSAM, sampa.SAMPa])
def test_loss_of_a_step_in_micro_batches_is_the_whole_batchs(
    make: Callable[..., sampa.SharpnessAware],
) -> None:
    model = Quadratic()
    parts = (
        {"num_shards": 2}
        if make is sampa.MicroBatchSAM
        else {"micro_batches": sampa.MicroBatches(count=2)}
    )
    optimizer = make(sgd(model), rho=0.1, **parts)
    expected = model(QUADRATIC_BATCHES[0]).item()
    assert optimizer.step(model, QUADRATIC_BATCHES[0]).item() == pytest.approx(expected, rel=1e-15)


def test_fisher_passes_do_not_enter_sparse_sams_record() -> None:
    model = Quadratic()
    optimizer = sampa.SparseSAM(sgd(model), rho=0.1, sparsity=0.0, num_samples=2)
    reference_model = Quadratic()
    reference = sampa.SAM(sgd(reference_model), rho=0.1)
    optimizer.step(model, QUADRATIC_BATCHES[0])
    reference.step(reference_model, QUADRATIC_BATCHES[0])
    assert optimizer.last is not None
    assert reference.last is not None
    assert optimizer.last.sharpness == reference.last.sharpness
    assert optimizer.last.cosine == reference.last.cosine
