"""Every method on the four-weight quadratic, against numbers computed without this library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.optim import Optimizer

import sampa
from tests.golden import values
from tests.problems import (
    QUADRATIC_BATCHES,
    Batch,
    Quadratic,
    flat,
    gradient_of,
    held_gradient,
    sgd,
    trajectory,
)


def adamw(model: torch.nn.Module) -> Optimizer:
    return torch.optim.AdamW(
        model.parameters(), lr=0.05, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01
    )


def given_direction(context: sampa.Context) -> sampa.Vector:
    e = torch.tensor([1.0, 2.0, 2.0, 4.0], dtype=torch.float64) / 5
    return sampa.Vector([e[0:2], e[2:3], e[3:4]])


@dataclass(frozen=True)
class Row:
    """How a golden value is reached: method, base optimizer, and how many batches are read."""

    make: Callable[..., sampa.SharpnessAware]
    base: Callable[[torch.nn.Module], Optimizer] = sgd
    batches: int = 3


ROWS: dict[str, Row] = {
    "base": Row(sampa.Base),
    "sam": Row(partial(sampa.SAM, rho=0.1)),
    "sam-db": Row(partial(sampa.SAMdb, rho=0.1), batches=4),
    "randsam": Row(partial(sampa.RandSAM, rho=0.1, direction=given_direction)),
    "optsam": Row(partial(sampa.OptSAM, rho=0.1)),
    "sampa-0": Row(partial(sampa.SAMPa, rho=0.1, lam=0.0), batches=4),
    "sampa-0.2": Row(partial(sampa.SAMPa, rho=0.1, lam=0.2), batches=4),
    "sampa-0.2 rho 0.2": Row(partial(sampa.SAMPa, rho=0.2, lam=0.2), batches=4),
    "sampa-1 = optgd": Row(sampa.OptGD, batches=4),
    "sampa-0.2 script start": Row(partial(sampa.SAMPa, rho=0.1, lam=0.2, bootstrap="script")),
    "base adamw": Row(sampa.Base, adamw),
    "sam adamw rho 1": Row(partial(sampa.SAM, rho=1.0), adamw),
    "sampa-0 adamw rho 1": Row(partial(sampa.SAMPa, rho=1.0, lam=0.0), adamw, batches=4),
    "sampa-0.2 adamw rho 1": Row(partial(sampa.SAMPa, rho=1.0, lam=0.2), adamw, batches=4),
}


def assert_golden(actual: Tensor, expected: tuple[float, ...]) -> None:
    reference = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(actual, reference, rtol=0, atol=values.TOLERANCE)


@pytest.mark.parametrize("name", ROWS)
def test_three_updates_end_at_the_golden_weights(name: str) -> None:
    row, model = ROWS[name], Quadratic()
    optimizer = row.make(row.base(model), perturb_eps=0.0)
    visited = trajectory(optimizer, model, QUADRATIC_BATCHES[: row.batches])
    assert len(visited) == 3
    assert_golden(visited[-1], values.X_3[name])


def test_sampa_with_lam_one_ends_at_optgds_golden_weights() -> None:
    model = Quadratic()
    optimizer = sampa.SAMPa(sgd(model), rho=0.1, lam=1.0, perturb_eps=0.0)
    visited = trajectory(optimizer, model, QUADRATIC_BATCHES)
    assert_golden(visited[-1], values.X_3["sampa-1 = optgd"])


@dataclass
class Trace:
    """Everything that a run of SAMPa-0.2 visits, seen from outside."""

    x: list[Tensor] = field(default_factory=list)
    # For each call of step: where loss_fn was called, by the number of its batch.
    points: list[dict[int, Tensor]] = field(default_factory=list)
    G: list[Tensor] = field(default_factory=list)


@pytest.fixture(scope="module")
def trace() -> Trace:
    model, seen = Quadratic(), Trace()
    base = sgd(model)
    base.register_step_pre_hook(lambda *_: seen.G.append(gradient_of(model)))
    optimizer = sampa.SAMPa(base, rho=0.1, lam=0.2, perturb_eps=0.0)

    def loss_fn(batch: Batch) -> Tensor:
        number = next(i for i, b in enumerate(QUADRATIC_BATCHES) if b is batch)
        assert number not in seen.points[-1]
        seen.points[-1][number] = flat(model)
        return model(batch)

    for batch in QUADRATIC_BATCHES:
        seen.points.append({})
        optimizer.step(loss_fn, batch)
        seen.x.append(flat(model))
    return seen


@pytest.mark.parametrize("t", range(3))
def test_sampa_visits_the_golden_iterate_x(trace: Trace, t: int) -> None:
    assert_golden(trace.x[t], values.TRACE[t]["x"])


@pytest.mark.parametrize("t", range(3))
def test_sampa_evaluates_the_golden_ascent_point(trace: Trace, t: int) -> None:
    assert_golden(trace.points[t + 1][t], values.TRACE[t]["x_tilde"])


@pytest.mark.parametrize("t", range(3))
def test_sampa_evaluates_the_golden_lookahead_point(trace: Trace, t: int) -> None:
    assert_golden(trace.points[t + 1][t + 1], values.TRACE[t]["y_next"])


@pytest.mark.parametrize("t", range(3))
def test_sampa_hands_the_golden_gradient_to_the_base_optimizer(trace: Trace, t: int) -> None:
    assert_golden(trace.G[t], values.TRACE[t]["G"])


def test_sampa_perturbs_on_the_held_batch_and_looks_ahead_on_the_incoming_one(
    trace: Trace,
) -> None:
    assert [set(points) for points in trace.points] == [{0}, {0, 1}, {1, 2}, {2, 3}]


@pytest.mark.parametrize("t", range(3))
def test_sampa_holds_the_golden_gradient_at_y(t: int) -> None:
    model = Quadratic()
    optimizer = sampa.SAMPa(sgd(model), rho=0.1, lam=0.2, perturb_eps=0.0)
    for batch in QUADRATIC_BATCHES[: t + 1]:
        optimizer.step(model, batch)
    assert_golden(held_gradient(optimizer), values.TRACE_G[t])


def test_sam_reports_the_golden_losses_and_norm_of_its_first_step() -> None:
    model = Quadratic()
    optimizer = sampa.SAM(sgd(model), rho=0.1, perturb_eps=0.0)
    optimizer.step(model, QUADRATIC_BATCHES[0])
    assert optimizer.last is not None
    actual = (*optimizer.last.losses, optimizer.last.norms[0])
    expected = (values.FIRST_LOSS, values.SAM_LOSS, values.FIRST_NORM)
    assert actual == pytest.approx(expected, rel=0, abs=values.TOLERANCE)


def test_sam_hands_on_the_golden_gradient_of_its_first_step() -> None:
    model = Quadratic()
    sampa.SAM(sgd(model), rho=0.1, perturb_eps=0.0).step(model, QUADRATIC_BATCHES[0])
    actual = torch.cat([p.grad for p in model.parameters() if p.grad is not None])
    assert_golden(actual, values.SAM_GRADIENT)


def test_first_gradient_of_the_problem_is_the_golden_one() -> None:
    """Checks the problem itself, so that a wrong row means a wrong method."""
    model = Quadratic()
    loss = model(QUADRATIC_BATCHES[0])
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    assert loss.item() == values.FIRST_LOSS
    assert_golden(torch.cat(gradients), values.FIRST_GRADIENT)
