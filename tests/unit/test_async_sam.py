"""AsyncSAM: which weights and which batch the one-step-old gradient is taken at."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import sampa
from tests.problems import BASES, flat
from tests.variants import BATCHES, gradient_at, loss_of, normalized_mlp

RHO = 0.3


def run(**settings: Any) -> tuple[list[Tensor], list[tuple[Tensor, list[int]]]]:
    """The iterates; the point and the samples' numbers of every evaluation."""
    model = normalized_mlp()
    base = BASES["sgd"](model.parameters())
    optimizer = sampa.AsyncSAM(base, rho=RHO, perturb_eps=0.0, **settings)
    iterates, calls = [flat(model)], []

    def loss_fn(batch: Any) -> sampa.Loss:
        calls.append((flat(model), batch[2].tolist()))
        return loss_of(model)(batch)

    for batch in BATCHES:
        optimizer.step(loss_fn, batch)
        iterates.append(flat(model))
    return iterates, calls


def unit(g: Tensor) -> Tensor:
    return g / g.norm()


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=0, atol=1e-13)


def numbers(t: int, share: float = 1.0) -> list[int]:
    return list(range(6 * t, 6 * t + int(6 * share)))


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_steps_follow_the_formula_with_the_gradient_of_the_step_before(share: float) -> None:
    """x_{t+1} = x_t − η ∇f(x_t + ρ a_{t−1} / ‖·‖; B_t),  a_t = ∇f(x_t; B'_t)."""
    x, _ = run(ascent_share=share)
    kept = int(6 * share)
    offset = torch.zeros_like(x[0])
    for t, batch in enumerate(BATCHES):
        close(x[t + 1], x[t] - 0.1 * gradient_at(x[t] + offset, batch))
        offset = RHO * unit(gradient_at(x[t], tuple(part[:kept] for part in batch)))


def test_descent_and_ascent_are_evaluated_on_the_same_batch() -> None:
    x, calls = run(ascent_share=0.5)
    for t in range(2):
        of_step = {len(n): (point, n) for point, n in calls[2 * t : 2 * t + 2]}
        assert of_step[6][1] == numbers(t)
        assert of_step[3][1] == numbers(t, 0.5)
        assert torch.equal(of_step[3][0], x[t])


def test_first_update_is_unperturbed() -> None:
    x, calls = run()
    assert all(torch.equal(point, x[0]) for point, _ in calls[:2])


def test_next_form_perturbs_and_updates_on_the_same_batch() -> None:
    """a = ∇f(x_{t−1}; B_t), taken one update early: SAMPa-0 with x_{t−1} in the place of y_t."""
    x, _ = run(ascent_batch="next")
    assert torch.equal(x[1], x[0])  # the first call only computes a
    previous = x[0]
    for t, batch in enumerate(BATCHES[:-1]):
        a = gradient_at(previous, batch)
        close(x[t + 2], x[t + 1] - 0.1 * gradient_at(x[t + 1] + RHO * unit(a), batch))
        previous = x[t + 1]


def test_both_gradients_are_one_round() -> None:
    model = normalized_mlp()
    optimizer = sampa.AsyncSAM(BASES["sgd"](model.parameters()))
    for batch in BATCHES[:2]:
        optimizer.step(loss_of(model), batch)
    assert optimizer.last is not None
    assert (optimizer.last.rounds, optimizer.last.probes) == (1, 2)


def test_ascent_part_has_at_least_one_sample() -> None:
    _, calls = run(ascent_share=0.01)
    assert min((n for _, n in calls[:2]), key=len) == [0]
