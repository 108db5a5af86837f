"""Variants: what tells the runs of a recipe apart besides the seed, what they are called, and the
order they stand in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeGuard

from sampa.lab.conditions import flat
from sampa.lab.training.hyperparameters import (
    epochs_of,
    given_options,
    known_method,
    known_methods,
)
from sampa.lab.training.run import Run
from sampa.names import ALIASES

# Fields that name a run, or that each method has its own value of.
RUN_NAMES = ("name", "about", "method", "seed")
OWN_FIELDS = (*RUN_NAMES, "rho", "lam", "rhos", "method_options", "base_epochs")


def is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def family(method: str) -> str:
    """The catalog's name of a method, whatever its λ."""
    name = ALIASES.get(method, method)
    return "sampa" if name.startswith("sampa-") else name


def used_hyperparameters(run: Run) -> dict[str, object]:
    """What the method was built with: its defaults, the recipe's values, the command line's."""
    try:
        method = known_method(run.method)
        given = given_options(run, method.hyperparameters, total_steps=0)
    except ValueError:  # a method of another version, or of the user's own
        given = {"rho": run.rho, "lam": run.lam, **run.method_options}
        return {name: value for name, value in given.items() if value is not None}
    defaults = {k: v for k, v in method.hyperparameters.items() if is_number(v)}
    values = {**defaults, **given}
    return {name: value for name, value in values.items() if name != "total_steps"}


def own_settings(run: Run) -> dict[str, str]:
    """The settings that each method has its own value of."""
    return {**flat(used_hyperparameters(run)), "epochs": str(epochs_of(run))}


def shared_settings(run: Run) -> dict[str, str]:
    """The settings that are the same for all methods of a recipe, unless changed by hand."""
    return flat({k: v for k, v in run.as_json().items() if k not in OWN_FIELDS})


def labels(runs: Sequence[Run]) -> list[str]:
    """A name for each run of a recipe that tells the variants apart, and no more than that."""
    shared, own = [shared_settings(run) for run in runs], [own_settings(run) for run in runs]
    methods = [run.method for run in runs]
    names = {
        m: _varying([o for o, n in zip(own, methods, strict=True) if n == m])
        for m in dict.fromkeys(methods)
    }
    common = _varying(shared)
    return [
        _label(method, {**some, **more}, dict.fromkeys([*names[method], *common]))
        for method, some, more in zip(methods, shared, own, strict=True)
    ]


def _label(method: str, settings: dict[str, str], names: Iterable[str]) -> str:
    parts = [f"{name}={settings[name]}" for name in names if name in settings]
    return ", ".join([method, *parts])


def _varying(settings: Sequence[dict[str, str]]) -> list[str]:
    """The names whose values are not the same everywhere."""
    names = dict.fromkeys(name for values in settings for name in values)
    return [name for name in names if len({values.get(name) for values in settings}) > 1]


def order(run: Run, label: str) -> tuple[int, float, str, int]:
    """To sort by: the catalog's order, SAMPa by λ, then labels and seeds."""
    known = list(known_methods())
    name = family(run.method)
    lam = used_hyperparameters(run).get("lam")
    place = known.index(name) if name in known else len(known)
    return place, lam if is_number(lam) else 0.0, label, run.seed
