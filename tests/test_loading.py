"""Loading what does not belong here: refused with the reason, and nothing is changed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import sampa
from tests.problems import (
    cross_entropy_of,
    same_bits,
    sgd,
    through_a_file,
    tiny_mlp,
    vector_batches,
)

BATCHES = vector_batches(4)


def run(optimizer: sampa.SharpnessAware, model: nn.Module, batches: list[Any]) -> None:
    for batch in batches:
        optimizer.step(cross_entropy_of(model), batch)


def everything(optimizer: sampa.SharpnessAware, model: nn.Module) -> list[Any]:
    return [model.state_dict(), optimizer.state_dict()]


def newer(saved: dict[str, Any]) -> None:
    saved["sampa"]["schema"] = 1000


def without_key(saved: dict[str, Any]) -> None:
    del saved["sampa"]


def other_shapes(saved: dict[str, Any]) -> None:
    model = nn.Sequential(nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 3)).double()
    optimizer = sampa.SAMPa(sgd(model))
    run(optimizer, model, BATCHES[:3])
    saved.update(through_a_file(optimizer.state_dict()))


def other_number_of_groups(saved: dict[str, Any]) -> None:
    saved["param_groups"] = saved["param_groups"] * 2


def other(make: Callable[[nn.Module], sampa.SharpnessAware]) -> Callable[[dict[str, Any]], None]:
    def change(saved: dict[str, Any]) -> None:
        model = tiny_mlp()
        optimizer = make(model)
        run(optimizer, model, BATCHES[:3])
        saved.update(through_a_file(optimizer.state_dict()))

    return change


WRONG: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "newer schema": (newer, r"must have schema \d+, got 1000; load it with the version"),
    "no key": (without_key, r"must come from a sampa optimizer.*load that into optimizer\.base"),
    "shapes": (other_shapes, r"must have the parameters' shapes .*load it into the model"),
    "groups": (other_number_of_groups, "different number of parameter groups"),
    "method": (other(lambda m: sampa.SAM(sgd(m))), "method must be as saved: 'SAMMethod'"),
    "lam": (other(lambda m: sampa.SAMPa(sgd(m), lam=0.3)), r"lam must be as saved: 0.3, got 0.2"),
    "rho": (other(lambda m: sampa.SAMPa(sgd(m), rho=0.7)), r"rho must be as saved: 0.7, got 0.1"),
    "base": (
        other(lambda m: sampa.SAMPa(torch.optim.AdamW(m.parameters()))),
        "base must be as saved: 'AdamW', got 'SGD'",
    ),
    "max_norm": (
        other(lambda m: sampa.SAMPa(sgd(m), max_norm=1.0)),
        "max_norm must be as saved: 1.0, got None",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_state_that_does_not_belong_here_is_refused_and_nothing_changes(case: str) -> None:
    change, message = WRONG[case]
    model = tiny_mlp()
    optimizer = sampa.SAMPa(sgd(model))
    run(optimizer, model, BATCHES[:4])
    before = copy.deepcopy(everything(optimizer, model))
    saved = through_a_file(optimizer.state_dict())
    change(saved)
    with pytest.raises(ValueError, match=message):
        optimizer.load_state_dict(saved)
    assert same_bits(everything(optimizer, model), before)


def test_a_changed_setting_is_accepted_when_asked_for() -> None:
    model = tiny_mlp()
    optimizer = sampa.SAMPa(sgd(model), lam=0.3)
    run(optimizer, model, BATCHES[:3])
    changed = sampa.SAMPa(sgd(model), lam=0.2)
    changed.load_state_dict(through_a_file(optimizer.state_dict()), allow_changes=True)
    run(changed, model, BATCHES[3:4])
    assert changed.last is not None
    assert changed.last.step == 3


def test_even_allowed_changes_cannot_load_another_methods_state() -> None:
    model = tiny_mlp()
    optimizer = sampa.SAMdb(sgd(model))
    run(optimizer, model, BATCHES[:3])
    with pytest.raises(ValueError, match="saved method state must have the fields"):
        sampa.SAMPa(sgd(model)).load_state_dict(optimizer.state_dict(), allow_changes=True)


def test_a_plain_optimizers_state_loads_into_the_base() -> None:
    model = tiny_mlp()
    plain = sgd(model)
    cross_entropy_of(model)(BATCHES[0]).backward()
    plain.step()
    optimizer = sampa.SAMPa(sgd(model))
    optimizer.base.load_state_dict(plain.state_dict())
    assert same_bits(optimizer.state_dict()["state"], plain.state_dict()["state"])
