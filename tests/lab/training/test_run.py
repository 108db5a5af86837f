"""A run as one value: schedules, hyper-parameters, JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from sampa.catalog import find_method
from sampa.lab.commands.arguments import Changes
from sampa.lab.training.folder import RunFolder
from sampa.lab.training.loop import Trainer
from sampa.lab.training.method import base_optimizer, checked_method, method_options
from sampa.lab.training.recipes import RECIPES, find_recipe
from sampa.lab.training.run import BaseSpec, DataSpec, Run, Schedule
from sampa.lab.training.session import Clock, Settings
from sampa.optimizer import SharpnessAware
from tests.lab.training.runs import carry_out, tiny_run


def factors(schedule: Schedule, per_epoch: int, epochs: int) -> list[float]:
    return [schedule.factor(p, per_epoch, epochs) for p in range(per_epoch * epochs)]


# ---- schedules -------------------------------------------------------------------------------


def test_cosine_changes_once_an_epoch() -> None:
    half = 0.5 * (1 + math.cos(math.pi / 4))
    expected = [1.0, 1.0, half, half, 0.5, 0.5, 1 - half, 1 - half]
    assert factors(Schedule("cosine"), per_epoch=2, epochs=4) == pytest.approx(expected, abs=1e-15)


def test_cosine_is_that_of_torch_stepped_once_an_epoch() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=200)
    for epoch in range(200):
        ours = 0.1 * Schedule("cosine").factor(3 * epoch, 3, 200)
        assert ours == pytest.approx(optimizer.param_groups[0]["lr"], abs=1e-12)
        optimizer.step()
        scheduler.step()


def test_linear_falls_step_by_step_to_zero() -> None:
    assert factors(Schedule("linear"), 2, 2) == [1.0, 0.75, 0.5, 0.25]


def test_linear_rises_first_if_it_warms_up() -> None:
    assert factors(Schedule("linear", warmup=0.5), 4, 2) == pytest.approx(
        [0.25, 0.5, 0.75, 1.0, 1.0, 0.75, 0.5, 0.25]
    )


def test_constant_rises_first_if_it_warms_up() -> None:
    assert factors(Schedule("constant", warmup=0.5), 2, 2) == [0.5, 1.0, 1.0, 1.0]


def test_the_rate_is_set_in_every_group(tmp_path: Path) -> None:
    run, settings = tiny_run(), Settings(device="cpu", quiet=True)
    trainer = Trainer(run, RunFolder(tmp_path), settings, checked_method(run))
    (group,) = trainer.optimizer.param_groups
    trainer.optimizer.add_param_group({"params": [group["params"].pop()], "lr": 3.0})
    with trainer.display(2) as display:
        trainer.train_batch(0, Clock(), display)
    assert [group["lr"] for group in trainer.optimizer.param_groups] == [0.05, 0.05]


def test_an_optimizer_is_built_once_after_one_check_on_a_single_weight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    original = SharpnessAware.__init__

    def counted(self: SharpnessAware, base: torch.optim.Optimizer, *rest: Any, **more: Any) -> None:
        sizes.append(sum(p.numel() for group in base.param_groups for p in group["params"]))
        original(self, base, *rest, **more)

    monkeypatch.setattr(SharpnessAware, "__init__", counted)
    carry_out(tiny_run(), tmp_path, limit_steps=1)
    check, built = sizes
    assert check == 1 < built


# ---- hyper-parameters of the method ----------------------------------------------------------


def options(run: Run) -> dict[str, Any]:
    return method_options(run, find_method(run.method), total_steps=60)


def test_the_recipe_gives_a_method_its_rho() -> None:
    assert options(find_recipe("cifar100-resnet56").changed(method="sam")) == {"rho": 0.1}


def test_the_command_line_has_the_last_word() -> None:
    run = find_recipe("cifar10-resnet56").changed(rho=0.3, lam=0.4)
    assert options(run) == {"rho": 0.3, "lam": 0.4}


@pytest.mark.parametrize("recipe", RECIPES)
def test_two_names_of_a_method_have_the_same_rho(recipe: str) -> None:
    run = find_recipe(recipe)
    assert options(run.changed(method="sampa-0.2")) == options(run.changed(method="sampa"))


def test_a_method_that_plans_ahead_is_told_the_number_of_steps() -> None:
    assert options(tiny_run(method="ae-sam")).get("total_steps") == 60


def test_an_unknown_hyperparameter_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"method sam has no hyper-parameter lam; it has rho"):
        options(tiny_run(method="sam", lam=0.2))


def test_a_method_without_hyperparameters_says_so() -> None:
    with pytest.raises(ValueError, match="method sgd has no hyper-parameter rho; it has none"):
        options(tiny_run(method="sgd", rho=0.1))


def test_an_impossible_value_is_found_before_a_run_begins() -> None:
    with pytest.raises(ValueError, match=r"lam must be .*, got 2.0"):
        checked_method(tiny_run(lam=2.0))


# ---- the value itself ------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_run_survives_json(recipe: str) -> None:
    run = find_recipe(recipe)
    assert Run.from_json(json.loads(json.dumps(run.as_json()))) == run


def edited(**changes: Any) -> dict[str, Any]:
    return {**tiny_run().as_json(), **changes}


def test_an_unknown_field_is_refused_with_the_nearest_name() -> None:
    message = "field of run must be a known name, got 'epoch'; did you mean 'epochs'"
    with pytest.raises(ValueError, match=message):
        Run.from_json(edited(epoch=3))


def test_an_unknown_field_of_a_part_is_refused_with_the_nearest_name() -> None:
    base = {**tiny_run().as_json()["base"], "momentun": 0.9}
    message = "field of run.base must be a known name, got 'momentun'; did you mean 'momentum'"
    with pytest.raises(ValueError, match=message):
        Run.from_json(edited(base=base))


def test_a_missing_field_is_refused() -> None:
    values = tiny_run().as_json()
    del values["data"]
    with pytest.raises(ValueError, match="run must have a field 'data'; it is missing"):
        Run.from_json(values)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 2.5}, r"run\.epochs must be a whole number, got 2\.5"),
        ({"epochs": True}, r"run\.epochs must be a whole number, got True"),
        ({"rho": "0.1"}, r"run\.rho must be a finite number or null, got '0\.1'"),
        ({"rho": math.nan}, r"run\.rho must be a finite number or null, got nan"),
        ({"label_smoothing": 10**400}, r"run\.label_smoothing must be a finite number, got 1000"),
        ({"amp": "fp8"}, r"run\.amp must be one of 'bf16', 'fp16' or null, got 'fp8'"),
        ({"rhos": {"sam": None}}, r"run\.rhos must be an object of a finite number, got"),
        ({"base": []}, r"run\.base must be a JSON object, got \[\]"),
        ({"compile": 1}, r"run\.compile must be true or false, got 1"),
        ({"name": None}, r"run\.name must be text, got None"),
    ],
)
def test_a_field_of_another_type_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Run.from_json(edited(**changes))


def test_nothing_changes_where_nothing_is_given() -> None:
    assert tiny_run().changed(method=None, rho=None) == tiny_run()
    assert Changes().applied_to(tiny_run()) == tiny_run()


def test_the_base_optimizer_can_be_changed() -> None:
    assert Changes(lr=0.3).applied_to(tiny_run()).base == BaseSpec(lr=0.3)


UNKNOWN: Any = "lion"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: tiny_run(epochs=0), "epochs must be >= 1, got 0"),
        (lambda: tiny_run(batch_size=0), "batch_size must be >= 1, got 0"),
        (lambda: tiny_run(seed=-1), "seed must be >= 0, got -1"),
        (lambda: BaseSpec(lr=-0.1), "lr must be finite and > 0, got -0.1"),
        (lambda: BaseSpec(UNKNOWN), "kind must be one of 'sgd', 'adamw', got 'lion'"),
        (lambda: DataSpec("digits", label_noise=1.0), r"label_noise must be in \[0, 1\), got 1.0"),
        (lambda: DataSpec("digits", validation=-0.1), r"validation must be in \[0, 1\), got -0.1"),
    ],
)
def test_impossible_settings_are_refused(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()


def test_the_base_optimizers_are_those_that_were_asked_for() -> None:
    model = torch.nn.Linear(1, 1)
    sgd = base_optimizer(BaseSpec(lr=0.3, momentum=0.8, weight_decay=0.2), model)
    assert isinstance(sgd, torch.optim.SGD)
    assert (sgd.defaults["lr"], sgd.defaults["momentum"], sgd.defaults["weight_decay"]) == (
        0.3,
        0.8,
        0.2,
    )
    adamw = base_optimizer(BaseSpec("adamw", lr=0.3, weight_decay=0.2), model)
    assert isinstance(adamw, torch.optim.AdamW)
    assert (adamw.defaults["lr"], adamw.defaults["weight_decay"]) == (0.3, 0.2)
