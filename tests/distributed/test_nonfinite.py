"""A gradient that is not finite on one branch only: all ranks decide the same."""

from __future__ import annotations

import math
import os
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.distributed.training import Run, Session, cross_entropy, differences, small_net
from tests.problems import Batch
from tests.ranks import run_ranks

pytestmark = pytest.mark.dist

BAD_STEP = 3


class Spoiled(nn.Module):
    """A network whose output turns into NaN (or overflows) in one pass of one step."""

    def __init__(self, branch: int, factor: float) -> None:
        super().__init__()
        self.net = small_net()
        self.branch, self.factor = branch, factor
        self.passes: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        is_held = any(torch.equal(x, earlier) for earlier in self.passes)
        self.passes.append(x)
        return self.net(x) * self.factor if self._is_bad(is_held) else self.net(x)

    def _is_bad(self, is_held: bool) -> bool:
        """The first branch evaluates held batches, the second incoming ones.

        In one process a step makes both passes, after a first step of one pass.
        """
        if os.environ["WORLD_SIZE"] == "1":
            step, branch = len(self.passes) // 2 + 1, 0 if is_held else 1
        else:
            step, branch = len(self.passes), int(os.environ["RANK"])
        return (step, branch) == (BAD_STEP, self.branch)


def train_spoiled(branch: int, factor: float, options: dict[str, Any]) -> list[Any]:
    """After every step: the weights, the base's state, the record, and a scaler's scale."""
    run = Run(net=lambda: Spoiled(branch, factor), options=options)
    session = Session(run)
    seen = []
    for _ in range(6):
        session.advance(1)
        scaler = session.optimizer.options.scaler
        seen.append(
            {
                "weights": [p.detach().clone() for p in session.model.parameters()],
                "state": [v["momentum_buffer"].clone() for v in session.optimizer.state.values()],
                "last": session.optimizer.last,
                "scale": None if scaler is None else scaler.get_scale(),
            }
        )
    return seen


@pytest.mark.parametrize("factor", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("branch", [0, 1])
def test_both_ranks_skip_a_step_that_is_bad_on_one_branch(branch: int, factor: float) -> None:
    first, second = run_ranks(2, train_spoiled, branch, factor, {})
    assert [step["last"].skipped for step in first] == [False, False, True, False, False, False]
    assert differences(first, second) == []


@pytest.mark.parametrize("branch", [0, 1])
def test_a_skipped_step_leaves_weights_and_base_state_untouched(branch: int) -> None:
    for seen in run_ranks(2, train_spoiled, branch, math.nan, {}):
        before, after = seen[BAD_STEP - 2], seen[BAD_STEP - 1]
        assert differences(before["weights"], after["weights"]) == []
        assert differences(before["state"], after["state"]) == []


@pytest.mark.parametrize("branch", [0, 1])
def test_two_ranks_go_on_after_a_skip_as_one_process_does(branch: int) -> None:
    expected = run_ranks(1, train_spoiled, branch, math.nan, {})[0]
    for seen in run_ranks(2, train_spoiled, branch, math.nan, {}):
        assert differences(seen, expected) == []


@pytest.mark.parametrize("branch", [0, 1])
def test_a_loss_that_jumps_on_one_branch_is_taken_alike_by_all(branch: int) -> None:
    """A large loss is no fault: nobody skips, and two ranks go where one process goes."""
    (expected,) = run_ranks(1, train_spoiled, branch, 1e3, {"max_norm": 1.0})
    for seen in run_ranks(2, train_spoiled, branch, 1e3, {"max_norm": 1.0}):
        assert not any(step["last"].skipped for step in seen)
        assert differences(seen, expected) == []


def train_without_gradient(lam: float) -> list[Any]:
    session = Session(Run(loss=no_slope, options={"lam": lam}))
    session.advance(4)
    return [p.detach().clone() for p in session.model.parameters()]


def no_slope(model: nn.Module, batch: Batch) -> Tensor:
    return 0.0 * cross_entropy(model, batch)


@pytest.mark.parametrize("lam", [0.0, 0.5, 1.0])
def test_a_gradient_of_norm_zero_is_finite_and_the_same_on_both_ranks(lam: float) -> None:
    first, second = run_ranks(2, train_without_gradient, lam)
    assert all(p.isfinite().all() for p in first)
    assert differences(first, second) == []


def train_scaled(branch: int) -> list[Any]:
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    return train_spoiled(branch, 1e36, {"scaler": scaler})


@pytest.mark.parametrize("branch", [0, 1])
def test_an_overflow_on_one_branch_lowers_the_scale_on_both_ranks(branch: int) -> None:
    first, second = run_ranks(2, train_scaled, branch)
    assert [s["scale"] for s in first] == [2.0**10] * 2 + [2.0**9] * 4
    assert differences(first, second) == []


def bad_loss(model: nn.Module, batch: Batch) -> Tensor:
    return cross_entropy(model, batch) * math.nan


def skip_until_refused() -> str:
    session = Session(Run(loss=bad_loss, options={"max_skips": 3}))
    try:
        session.advance(20)
    except RuntimeError as error:
        return str(error)
    return "never"


def test_both_ranks_give_up_after_the_same_number_of_bad_steps() -> None:
    first, second = run_ranks(2, skip_until_refused)
    assert "3 steps in a row had a gradient that is not finite" in first
    assert first == second
