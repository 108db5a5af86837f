"""Data ranks: each takes a part of the batch, and together they take the step of the whole batch.

A mean over shards rounds differently from a mean over the batch, so equality with one process
holds to rounding only. In float64 the runs below stay within 3e-15 of each other; a shard that is
weighted wrongly would show at about 1e-3.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch

import sampa
from sampa.method import MethodDefaults, Rounds
from sampa.vectors.vector import weighted_sum
from tests.distributed.training import (
    Outcome,
    Run,
    differences,
    net_without_noise,
    parallel,
    serial,
)
from tests.marks import rest_is_slow
from tests.problems import METHODS

pytestmark = pytest.mark.dist

TOLERANCE = 1e-13
EXACT = Run(steps=21, net=net_without_noise, dtype=torch.float64)


def replica(outcome: Outcome) -> Outcome:
    """All but the held batch, of which each data rank has its part."""
    state = {k: v for k, v in outcome.optimizer["sampa"].items() if k != "held_batch"}
    return replace(outcome, optimizer={**outcome.optimizer, "sampa": state})


def error(a: Outcome, b: Outcome) -> float:
    weights = [(a.model[k] - b.model[k]).abs().max().item() for k in a.model]
    losses = [abs(s.item() - t.item()) for s, t in zip(a.losses, b.losses, strict=True)]
    return max(weights + losses)


@pytest.mark.parametrize("base", rest_is_slow(["sgd-momentum", "adamw"], "sgd-momentum"))
def test_four_ranks_hold_the_same_replica_bitwise(base: str) -> None:
    first, *others = map(replica, parallel(Run(steps=31, base=base), ranks=4))
    assert [differences(first, other) for other in others] == [[], [], []]


@pytest.mark.parametrize("lam", rest_is_slow([0.0, 0.2], 0.2))
def test_two_branches_of_two_data_ranks_take_the_step_of_the_whole_batch(lam: float) -> None:
    run = replace(EXACT, options={"lam": lam}, distribute={"bucket_mb": 0.001})
    assert error(parallel(run, ranks=4)[3], serial(run)) < TOLERANCE


@pytest.mark.parametrize("name", rest_is_slow(METHODS, "sam", "sampa-0.2"))
def test_every_method_on_data_ranks_takes_the_step_of_the_whole_batch(name: str) -> None:
    run = replace(EXACT, make=METHODS[name], distribute={"branches": 1})
    first, second = parallel(run)
    assert differences(replica(first), replica(second)) == []
    assert error(second, serial(run)) < TOLERANCE


def test_sam_on_data_ranks_trains_with_batch_norm_in_two_forward_passes() -> None:
    """DDP with buffers and two forward passes is known for an in-place error (pytorch 22095)."""
    first, second = map(replica, parallel(Run(make=sampa.SAM, distribute={"branches": 1})))
    assert differences(first, second) == []


def test_data_ranks_accumulate_like_one_process() -> None:
    run = replace(EXACT, make=sampa.SAM, options={"accumulate": 2}, distribute={"branches": 1})
    assert error(parallel(run)[0], serial(run)) < TOLERANCE


@dataclass(frozen=True)
class ThreeProbes(MethodDefaults):
    """The mean of three gradients of one round; the middle one counts in BatchNorm's statistics."""

    def rounds(self, context: sampa.Context, state: None) -> Rounds:
        gradients = yield tuple(sampa.Probe(mode=sampa.Mode(statistics=i == 1)) for i in range(3))
        return sampa.Update(weighted_sum(gradients, [1 / 3] * 3))


def three_probes(base: torch.optim.Optimizer, **options: object) -> sampa.SharpnessAware:
    return sampa.SharpnessAware(base, ThreeProbes(), **options)


@pytest.mark.parametrize("branches", rest_is_slow([2, 3], 2))
def test_three_probes_on_any_number_of_branches_match_serial_bitwise(branches: int) -> None:
    run = Run(make=three_probes, distribute={"branches": branches})
    expected = serial(run)
    assert [differences(o, expected) for o in parallel(run, branches)] == [[]] * branches
