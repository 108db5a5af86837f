"""Experiments for a cause: they change what is suspected, and share the rest with the tables."""

from __future__ import annotations

import pytest

from sampa.lab.reproduce import causes, grids
from sampa.lab.reproduce.finished import settings_of
from sampa.lab.reproduce.plan import Plan, Planner
from sampa.lab.results.outcome import Choice
from sampa.lab.training.hyperparameters import epochs_of, radius_of

RADII = {"sam": 0.1, "sampa-0": 0.15, "sampa-0.2": 0.4}
CHOSEN = {
    "clean": Choice(0.05, 0.1, RADII),
    "noise": Choice(0.05, 0.1, RADII),
    "efficient": Choice(0.05, 0.1, {"esam": 0.3, "looksam": 0.1, "ae-sam": 0.1}),
}


def settings(plan: Plan) -> set[str]:
    return {settings_of(entry.run) for entry in plan.entries}


@pytest.mark.parametrize(
    ("cause", "table", "shared"),
    [
        (causes.plan_best_lambda, grids.plan_lambdas, 3),  # all λ at the ρ of SAMPa-0.2
        (causes.plan_one_radius, grids.plan_efficiency, 2),  # SAM and, at four times its ρ, SAMPa
        (causes.plan_esam_parts, grids.plan_efficiency, 2),  # SAM and ESAM
        (causes.plan_twice_the_epochs, grids.plan_cifar10, 4),  # one network, as it is
    ],
)
def test_what_a_table_has_is_not_made_again(cause: Planner, table: Planner, shared: int) -> None:
    assert len(settings(cause("cpu", CHOSEN)) & settings(table("cpu", CHOSEN))) == shared


def test_radii_are_multiples_of_the_chosen_ones() -> None:
    found = {
        (e.readings[0][0], e.column): radius_of(e.run)
        for e in causes.plan_one_radius("cpu", CHOSEN).entries
    }
    assert found["half of SAM's ρ", "SAMPa-0.2"] == 0.05
    assert found["four times SAM's ρ", "SAM"] == 0.4


def test_esams_halves_are_turned_off_one_at_a_time() -> None:
    plan = causes.plan_esam_parts("cpu", CHOSEN)
    options = {e.column: e.run.method_options for e in plan.entries}
    assert options["ESAM"] == {}
    assert options["ESAM, all samples"] == {"gamma": 1.0}
    assert options["ESAM, all weights"] == {"beta": 1.0}
    assert {radius_of(e.run) for e in plan.entries if e.column != "SAM"} == {0.3}


def test_every_method_gets_twice_its_epochs() -> None:
    plan = causes.plan_twice_the_epochs("cpu", CHOSEN)
    epochs = {(e.readings[0][0], e.column): epochs_of(e.run) for e in plan.entries}
    for (row, column), number in epochs.items():
        if "2×" not in column:
            assert epochs[row, causes.twice_as_long(column)] == 2 * number
    assert {e.run.data.augment for e in plan.entries} == {True, False}
