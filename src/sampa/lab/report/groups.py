"""Groups: the runs of a recipe, and its variants, which differ in more than the seed."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from sampa.catalog import ALIASES, METHODS, find_method
from sampa.lab.report.collect import Problem
from sampa.lab.report.records import Record, flat
from sampa.lab.training.method import epochs_of, method_options
from sampa.lab.training.run import Run
from sampa.lab.training.tables import Grid
from sampa.messages import unknown

# Fields that name a run, or that each method has its own value of.
NAMES = ("name", "about", "method", "seed")
OWN_FIELDS = (*NAMES, "rho", "lam", "rhos", "method_options", "base_epochs")


@dataclass(frozen=True)
class Variant:
    """One row of a recipe's table: the same run with several seeds.

    Attributes:
        label: The method, with the settings in which it differs from other rows.
        style: Its number, which decides how charts draw it.
        hyperparameters: The method's, defaults included.
    """

    label: str
    style: int
    hyperparameters: dict[str, object]
    records: tuple[Record, ...]

    @property
    def method(self) -> str:
        return self.records[0].run.method


@dataclass(frozen=True)
class Recipe:
    """All runs of one name.

    Attributes:
        metric: The test metric that counts.
        variants: In the order of the catalog, SAMPa by λ.
        baseline: The variant that differences are taken to.
    """

    name: str
    about: str
    metric: str
    variants: tuple[Variant, ...]
    baseline: Variant

    @property
    def records(self) -> list[Record]:
        return [record for variant in self.variants for record in variant.records]

    def grid(self) -> Grid:
        return {
            variant.label: {r.run.seed: {**r.test, "seconds": r.seconds} for r in variant.records}
            for variant in self.variants
        }


def group(
    records: Sequence[Record], baseline: str | None = None
) -> tuple[list[Recipe], list[Problem]]:
    """The recipes by name, and the runs that cannot stand beside the others of theirs.

    Raises:
        ValueError: If no recipe has the baseline that was asked for.
    """
    problems: list[Problem] = []
    by_name: dict[str, list[Record]] = {}
    for record in sorted(_distinct(records, problems), key=lambda r: r.run.name):
        by_name.setdefault(record.run.name, []).append(record)
    recipes = [_recipe(_comparable(found, problems), baseline) for found in by_name.values()]
    problems += [Problem(r.name, reason) for r in recipes if (reason := _strange_paper(r))]
    labels = [name for recipe in recipes for v in recipe.variants for name in (v.label, v.method)]
    if baseline is not None and recipes and baseline not in labels:
        raise ValueError(unknown("baseline", baseline, dict.fromkeys(labels)))
    return recipes, problems


def hyperparameters(run: Run) -> dict[str, object]:
    """What the method was built with: its defaults, the recipe's values, the command line's."""
    try:
        factory = find_method(run.method)
        given = method_options(run, factory, total_steps=0)
    except ValueError:  # a method of another version, or of the user's own
        given = {"rho": run.rho, "lam": run.lam, **run.method_options}
        return {name: value for name, value in given.items() if value is not None}
    parameters = inspect.signature(factory).parameters.values()
    defaults = {p.name: p.default for p in parameters if is_number(p.default)}
    return {name: v for name, v in {**defaults, **given}.items() if name != "total_steps"}


def is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def family(method: str) -> str:
    """The catalog's name of a method, whatever its λ."""
    name = ALIASES.get(method, method)
    return "sampa" if name.startswith("sampa-") else name


def own_settings(run: Run) -> dict[str, str]:
    """The settings that each method has its own value of."""
    return {**flat(hyperparameters(run)), "epochs": str(epochs_of(run))}


def shared_settings(run: Run) -> dict[str, str]:
    """The settings that are the same for all methods of a recipe, unless someone changed them."""
    return flat({k: v for k, v in run.as_json().items() if k not in OWN_FIELDS})


# ---- variants --------------------------------------------------------------------------------


def _distinct(records: Sequence[Record], problems: list[Problem]) -> list[Record]:
    """Each run once: one that was made twice is no further evidence."""
    kept: dict[tuple[object, ...], Record] = {}
    for record in records:
        run = record.run
        settings = *shared_settings(run).items(), *own_settings(run).items()
        first = kept.setdefault((run.name, run.method, run.seed, settings), record)
        if first is not record:
            problems.append(Problem(record.place, f"the same run as {first.place}"))
    return list(kept.values())


def _comparable(records: list[Record], problems: list[Problem]) -> list[Record]:
    metric = next(iter(records[0].test))
    reason = f"no test {metric}, which other runs of {records[0].run.name} have"
    problems += [Problem(r.place, reason) for r in records if metric not in r.test]
    return [record for record in records if metric in record.test]


def _strange_paper(recipe: Recipe) -> str:
    """Why published values cannot stand beside ours; empty if they can, or if there are none."""
    papers = [record.paper for record in recipe.records if record.paper]
    if not papers or any(papers[0].metric in record.test for record in recipe.records):
        return ""
    return f"paper.json is about {papers[0].metric}, which the runs do not report"


def _recipe(records: list[Record], baseline: str | None) -> Recipe:
    labelled = list(zip(_labels(records), records, strict=True))
    labelled.sort(key=lambda pair: _order(pair[1].run, pair[0]))
    by_label: dict[str, list[Record]] = {}
    for label, record in labelled:
        by_label.setdefault(label, []).append(record)
    variants = tuple(
        Variant(label, style, hyperparameters(found[0].run), tuple(found))
        for style, (label, found) in enumerate(by_label.items())
    )
    chosen = [v for v in variants if baseline in (v.label, v.method)]
    first, metric = records[0].run, next(iter(records[0].test))
    return Recipe(first.name, first.about, metric, variants, (chosen or variants)[0])


def _labels(records: Sequence[Record]) -> list[str]:
    """A name for each run that tells the variants apart, and no more than that."""
    runs = [record.run for record in records]
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


def _order(run: Run, label: str) -> tuple[int, float, str, int]:
    known = list(METHODS)
    name = family(run.method)
    lam = hyperparameters(run).get("lam")
    place = known.index(name) if name in known else len(known)
    return place, lam if is_number(lam) else 0.0, label, run.seed
