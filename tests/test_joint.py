"""Several base optimizers as one: `sampa.SAMPa([muon, adamw])`."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adadelta, AdamW, Muon, Optimizer
from torch.optim.lr_scheduler import LambdaLR, StepLR

import sampa
from tests.distributed.training import Run, differences, parallel, serial
from tests.problems import (
    cross_entropy_of,
    flat,
    same_bits,
    through_a_file,
    tiny_mlp,
    vector_batches,
)

BATCHES = vector_batches(8)
METHODS: dict[str, Callable[..., sampa.SharpnessAware]] = {
    "sam": sampa.SAM,
    "sampa": sampa.SAMPa,
    "asam": sampa.ASAM,
    "momentum-sam": sampa.MomentumSAM,
}


def muon_and_adamw(model: nn.Module, *, fused: bool = False) -> list[Optimizer]:
    matrices = [p for p in model.parameters() if p.ndim == 2]
    rest = [p for p in model.parameters() if p.ndim != 2]
    return [Muon(matrices, lr=0.05), AdamW(rest, lr=0.05, fused=fused)]


def train(
    optimizer: sampa.SharpnessAware, model: nn.Module, steps: range = range(8), bad: int = -1
) -> list[Tensor]:
    points: list[Tensor] = []
    for step in steps:
        factor = math.inf if step == bad else 1.0
        loss_fn = cross_entropy_of(model)
        optimizer.step(lambda batch, f=factor, loss=loss_fn: loss(batch) * f, BATCHES[step])
        points.append(flat(model))
    return points


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_two_halves_of_an_optimizer_step_as_the_whole(method: str, fused: bool) -> None:
    """One norm, one lookahead, one clipping over all parameters."""
    ends = []
    for parts in (1, 2):
        model = tiny_mlp()
        weights = list(model.parameters())
        halves = [weights] if parts == 1 else [weights[:3], weights[3:]]
        bases = [AdamW(half, lr=0.05, fused=fused) for half in halves]
        optimizer = METHODS[method](bases, max_norm=0.3)
        ends.append((train(optimizer, model), optimizer.last))
    assert same_bits(*ends)


def test_muon_and_adamw_step_as_they_do_alone() -> None:
    one, two = tiny_mlp(), tiny_mlp()
    points = train(sampa.Base(muon_and_adamw(one)), one)
    bases = muon_and_adamw(two)
    for batch, point in zip(BATCHES, points, strict=True):
        cross_entropy_of(two)(batch).backward()
        for base in bases:
            base.step()
            base.zero_grad()
        assert torch.equal(flat(two), point)


@pytest.mark.parametrize("bad", [-1, 0, 4])
def test_late_checks_give_the_weights_of_prompt_ones(bad: int) -> None:
    """After a bad gradient SAMPa starts anew, one batch later if the checks are late."""
    kinds: list[Any] = ["now", "late"]
    ends = []
    for checks in kinds:
        model = tiny_mlp()
        optimizer = sampa.SAMPa(muon_and_adamw(model, fused=True), checks=checks)
        points = train(optimizer, model, bad=bad)
        assert all(point.isfinite().all() for point in points)
        ends.append(points[: bad + 1] if bad >= 0 else points)
        assert optimizer.last is not None
        assert (optimizer.last.skips > 0) == (bad >= 0)
    assert all(map(torch.equal, *ends))


def test_groups_are_the_bases_own_and_each_has_its_scheduler() -> None:
    model = tiny_mlp()
    bases = muon_and_adamw(model)
    optimizer = sampa.SAMPa(bases)
    groups = [group for base in bases for group in base.param_groups]
    assert len(optimizer.param_groups) == 2
    assert all(a is b for a, b in zip(optimizer.param_groups, groups, strict=True))
    schedulers = [StepLR(bases[0], 1, gamma=0.5), LambdaLR(bases[1], lambda step: 1 / (1 + step))]
    whole = StepLR(optimizer, 1, gamma=0.1)
    for batch in BATCHES[:2]:
        optimizer.step(cross_entropy_of(model), batch)
        for scheduler in schedulers:
            scheduler.step()
    assert [group["lr"] for group in optimizer.param_groups] == [0.0125, pytest.approx(0.05 / 3)]
    whole.step()
    assert bases[0].param_groups[0]["lr"] == pytest.approx(0.00125)


def test_a_run_resumes_exactly_from_one_state_dict() -> None:
    whole, first, second = tiny_mlp(), tiny_mlp(), tiny_mlp()
    expected = train(sampa.SAMPa(muon_and_adamw(whole)), whole)
    begun = sampa.SAMPa(muon_and_adamw(first))
    train(begun, first, range(4))
    saved = through_a_file(begun.state_dict())
    assert [group["params"] for group in saved["param_groups"]] == [[0, 1], [2, 3]]
    assert sorted(saved["state"]) == [0, 1, 2, 3]
    resumed = sampa.SAMPa(muon_and_adamw(second))
    second.load_state_dict(first.state_dict())
    resumed.load_state_dict(saved)
    assert all(map(torch.equal, train(resumed, second, range(4, 8)), expected[4:]))


def test_a_copy_goes_on_as_the_original() -> None:
    model = tiny_mlp()
    optimizer = sampa.SAMPa(muon_and_adamw(model))
    train(optimizer, model, range(3))
    other, twin = copy.deepcopy((optimizer, model))
    assert all(
        map(torch.equal, train(optimizer, model, range(3, 6)), train(other, twin, range(3, 6)))
    )


def test_a_radius_is_not_read_from_adadelta() -> None:
    model = tiny_mlp()
    first, *rest = model.parameters()
    optimizer = sampa.SAM([SGD([first], lr=0.1), Adadelta(rest, rho=0.9)], rho=0.05)
    train(optimizer, model, range(1))
    assert optimizer._rho(optimizer.param_groups[1]) == 0.05


# ---- what is refused ---------------------------------------------------------------------------


def test_bases_that_share_a_parameter_are_refused() -> None:
    model = tiny_mlp()
    bases = [SGD(model.parameters(), lr=0.1), AdamW(list(model.parameters())[:1])]
    with pytest.raises(ValueError, match="base optimizers must train different parameters"):
        sampa.SAM(bases)


def test_every_base_of_a_list_is_checked() -> None:
    model = tiny_mlp()
    wrong: Any = [SGD(model.parameters(), lr=0.1), model]
    with pytest.raises(TypeError, match="base must be a torch optimizer, got Sequential"):
        sampa.SAM(wrong)
    with pytest.raises(TypeError, match="base must be a torch optimizer, got list"):
        sampa.SAM([])


def test_a_group_is_added_to_the_base_that_trains_it() -> None:
    model, added = tiny_mlp(), nn.Linear(2, 2, dtype=torch.float64)
    bases = muon_and_adamw(model)
    optimizer = sampa.SAM(bases)
    with pytest.raises(ValueError, match=r"which of the base optimizers .*\(Muon, AdamW\)"):
        optimizer.add_param_group({"params": [added.bias]})
    bases[1].add_param_group({"params": [added.bias]})
    assert len(optimizer.param_groups) == 3
    train(optimizer, model, range(2))


def test_the_state_of_other_bases_is_refused_and_nothing_changes() -> None:
    model = tiny_mlp()
    optimizer = sampa.SAM(muon_and_adamw(model))
    train(optimizer, model, range(2))
    saved = optimizer.state_dict()
    single = sampa.SAM(AdamW(model.parameters()))
    with pytest.raises(ValueError, match=r"base must be as saved: 'Muon\+AdamW', got 'AdamW'"):
        single.load_state_dict(saved)
    turned = sampa.SAM(muon_and_adamw(model)[::-1])
    with pytest.raises(ValueError, match=r"base must be as saved"):
        turned.load_state_dict(saved)
    muon, adamw = muon_and_adamw(model)
    uneven = sampa.SAM([muon, AdamW([{"params": [p]} for p in adamw.param_groups[0]["params"]])])
    with pytest.raises(ValueError, match=r"groups must have \[2, 1, 1\] parameters.*got \[2, 2\]"):
        uneven.load_state_dict(saved)


def test_late_checks_refuse_a_list_with_one_base_that_cannot() -> None:
    with pytest.raises(ValueError, match="checks='late' needs a base optimizer"):
        sampa.SAMPa(muon_and_adamw(tiny_mlp()), checks="late")


# ---- on ranks ----------------------------------------------------------------------------------


def sampa_with_two_bases(base: Optimizer, **options: Any) -> sampa.SharpnessAware:
    parameters = [p for group in base.param_groups for p in group["params"]]
    matrices = [p for p in parameters if p.ndim == 2]
    rest = [p for p in parameters if p.ndim != 2]
    return sampa.SAMPa([Muon(matrices, lr=0.02), AdamW(rest, lr=0.01)], **options)


@pytest.mark.dist
def test_two_ranks_step_as_one_process_bitwise() -> None:
    run = Run(steps=9, make=sampa_with_two_bases, options={"max_norm": 0.5})
    first, second = parallel(run)
    assert differences(first, second) == []
    assert differences(first, serial(run)) == []
