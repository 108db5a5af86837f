"""Variants: what tells the runs of a recipe apart besides the seed, what they are called, and the
order they stand in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeGuard

from sampa.catalog import ALIASES, METHODS, find_method
from sampa.cost import hyperparameters
from sampa.lab.training.conditions import flat
from sampa.lab.training.method import epochs_of, method_options
from sampa.lab.training.run import Run

# Fields that name a run, or that each method has its own value of.
NAMES = ("name", "about", "method", "seed")
OWN_FIELDS = (*NAMES, "rho", "lam", "rhos", "method_options", "base_epochs")


def is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def family(method: str) -> str:
    """The catalog's name of a method, whatever its λ."""
    name = ALIASES.get(method, method)
    return "sampa" if name.startswith("sampa-") else name


def used_hyperparameters(run: Run) -> dict[str, object]:
    """What the method was built with: its defaults, the recipe's values, the command line's."""
    try:
        factory = find_method(run.method)
        given = method_options(run, factory, total_steps=0)
    except ValueError:  # a method of another version, or of the user's own
        given = {"rho": run.rho, "lam": run.lam, **run.method_options}
        return {name: value for name, value in given.items() if value is not None}
    defaults = {k: v for k, v in hyperparameters(factory).items() if is_number(v)}
    values = {**defaults, **given}
    return {name: value for name, value in values.items() if name != "total_steps"}


def own_settings(run: Run) -> dict[str, str]:
    """The settings that each method has its own value of."""
    return {**flat(used_hyperparameters(run)), "epochs": str(epochs_of(run))}


def shared_settings(run: Run) -> dict[str, str]:
    """The settings that are the same for all methods of a recipe, unless someone changed them."""
    return flat({k: v for k, v in run.as_json().items() if k not in OWN_FIELDS})


def labels(runs: Sequence[Run]) -> list[str]:
    """A name for each run of a recipe that tells the variants apart, and no more than that."""
    shared = _varying([shared_settings(run) for run in runs])
    own: dict[str, list[str]] = {}
    for method in dict.fromkeys(run.method for run in runs):
        own[method] = _varying([own_settings(run) for run in runs if run.method == method])
    return [_label(run, dict.fromkeys([*own[run.method], *shared])) for run in runs]


def _label(run: Run, names: Iterable[str]) -> str:
    settings = {**shared_settings(run), **own_settings(run)}
    parts = [f"{name}={settings[name]}" for name in names if name in settings]
    return ", ".join([run.method, *parts])


def _varying(settings: Sequence[dict[str, str]]) -> list[str]:
    """The names whose values are not the same everywhere."""
    names = dict.fromkeys(name for values in settings for name in values)
    return [name for name in names if len({values.get(name) for values in settings}) > 1]


def order(run: Run, label: str) -> tuple[int, float, str, int]:
    """To sort by: the catalog's order, SAMPa by λ, then labels and seeds."""
    known = list(METHODS)
    name = family(run.method)
    lam = used_hyperparameters(run).get("lam")
    place = known.index(name) if name in known else len(known)
    return place, lam if is_number(lam) else 0.0, label, run.seed
