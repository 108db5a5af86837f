"""What contradicted the paper in smaller editions, and one experiment for a cause of each.

Most runs are those of other tables: only what changes the suspected cause is new.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sampa.lab.reproduce.grids import (
    SAM_AND_SAMPA,
    generalization,
    of_variant,
    twice_as_long,
)
from sampa.lab.reproduce.plan import Choices, Plan, PlannedEntry, accuracies, against_first
from sampa.lab.reproduce.settings import images, run_in_words
from sampa.lab.results.paper import Scale
from sampa.lab.training.hyperparameters import epochs_of
from sampa.lab.training.run import Run

FACTORS = {"half": 0.5, "the same": 1.0, "twice": 2.0, "four times": 4.0}
SOME_LAMBDAS = {f"λ = {lam:g}": f"sampa-{lam:g}" for lam in (0, 0.2, 0.5)}
ESAM_PARTS = {"ESAM": {}, "ESAM, all samples": {"gamma": 1.0}, "ESAM, all weights": {"beta": 1.0}}
LONGER = {"SGD": "sgd", **SAM_AND_SAMPA}


def _with_radii(run: Run, method: str, names: Mapping[str, str]) -> dict[str, Run]:
    """The run with a method's radius, and with multiples of it; by the names of the rows."""
    return {row: replace(run, rho=FACTORS[f] * run.rhos[method]) for f, row in names.items()}


def plan_best_lambda(scale: Scale, choices: Choices) -> Plan:
    """λ = 0 was best in the sweep: is it ρ, chosen for another λ, that decides which is?"""
    run = generalization(scale, choices)
    rows = {
        "half": "half the ρ of SAMPa-0.2",
        "the same": "the ρ of SAMPa-0.2",
        "twice": "twice the ρ of SAMPa-0.2",
    }
    found = accuracies(_with_radii(run, "sampa-0.2", rows), SOME_LAMBDAS)
    return Plan(found, against_first(SOME_LAMBDAS), run_in_words(run))


def plan_one_radius(scale: Scale, choices: Choices) -> Plan:
    """SAMPa-0.2 was below SAM at one ρ for both: does it want a larger one?"""
    run = generalization(scale, choices)
    rows = {
        "half": "half of SAM's ρ",
        "the same": "SAM's ρ",
        "twice": "twice SAM's ρ",
        "four times": "four times SAM's ρ",
    }
    found = accuracies(_with_radii(run, "sam", rows), SAM_AND_SAMPA)
    return Plan(found, against_first(SAM_AND_SAMPA), run_in_words(run))


def plan_esam_parts(scale: Scale, choices: Choices) -> Plan:
    """ESAM was above SAM: is it the choice of samples, or that of weights?"""
    run, row = generalization(scale, choices), "test accuracy"
    found = accuracies({row: run}, {"SAM": "sam"})
    own = of_variant(run, scale, "esam")
    for name, options in ESAM_PARTS.items():
        found.append(PlannedEntry(name, replace(own, method_options=options), ((row, "accuracy"),)))
    return Plan(found, (*against_first(["SAM", *ESAM_PARTS]), *against_first(ESAM_PARTS)))


def plan_twice_the_epochs(scale: Scale, choices: Choices) -> Plan:
    """Twice the epochs gained nothing: are images that never change used up?"""
    run = images(scale, choices.get("clean"))
    if scale == "paper":  # which crops and flips all images, and has no other method for longer
        rows, methods = {"crops and flips": run}, {"SAMPa-0.2": "sampa-0.2"}
    else:
        moved = replace(run, data=replace(run.data, augment=True))
        rows, methods = {"images as they are": run, "crops and flips": moved}, LONGER
    found: list[PlannedEntry] = []
    for row, once in rows.items():
        longer = replace(once, epochs=2 * once.epochs)
        if scale != "paper":
            longer = replace(longer, base_epochs=2 * epochs_of(once.changed(method="sgd")))
        found += accuracies({row: once}, methods)
        found += accuracies({row: longer}, {twice_as_long(name): m for name, m in methods.items()})
    return Plan(found, tuple((twice_as_long(name), name) for name in methods), run_in_words(run))
