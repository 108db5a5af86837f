"""Groups: the runs of a recipe, and its variants, which differ in more than the seed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from sampa.catalog import ALIASES, METHODS, find_method
from sampa.cost import hyperparameters
from sampa.lab.report.records import FinishedRun, LeftOut, flat
from sampa.lab.results.outcome import Comparison, Entry, RunResult, compared, entry_of
from sampa.lab.training.method import epochs_of, method_options
from sampa.lab.training.run import Run
from sampa.messages import unknown

# Fields that name a run, or that each method has its own value of.
NAMES = ("name", "about", "method", "seed")
OWN_FIELDS = (*NAMES, "rho", "lam", "rhos", "method_options", "base_epochs")


@dataclass(frozen=True)
class Variant:
    """One row of a recipe's table: the same run with several seeds.

    Attributes:
        label: The method, with the settings in which it differs from other rows.
        look: The number of its look in charts.
        hyperparameters: The method's, defaults included.
    """

    label: str
    look: int
    hyperparameters: dict[str, object]
    runs: tuple[FinishedRun, ...]

    @property
    def method(self) -> str:
        return self.runs[0].run.method

    @property
    def results(self) -> dict[int, RunResult]:
        """By seed."""
        return {run.run.seed: run.result for run in self.runs}

    def entry(self, metric: str) -> Entry:
        return entry_of(metric, self.label, self.results)


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
    def runs(self) -> list[FinishedRun]:
        return [run for variant in self.variants for run in variant.runs]

    def against_baseline(self, variant: Variant) -> Comparison | None:
        """How much better than the baseline, on the seeds that both have."""
        return compared(variant.entry(self.metric), self.baseline.entry(self.metric))


def group(
    records: Sequence[FinishedRun], baseline: str | None = None
) -> tuple[list[Recipe], list[LeftOut]]:
    """The recipes by name, and the runs that cannot stand beside the others of theirs.

    Raises:
        ValueError: If no recipe has the baseline that was asked for.
    """
    left_out: list[LeftOut] = []
    by_name: dict[str, list[FinishedRun]] = {}
    for record in sorted(_distinct(records, left_out), key=lambda r: r.run.name):
        by_name.setdefault(record.run.name, []).append(record)
    recipes = [_recipe(_comparable(found, left_out), baseline) for found in by_name.values()]
    left_out += [LeftOut(r.name, reason) for r in recipes if (reason := _strange_paper(r))]
    labels = [name for recipe in recipes for v in recipe.variants for name in (v.label, v.method)]
    if baseline is not None and recipes and baseline not in labels:
        raise ValueError(unknown("baseline", baseline, dict.fromkeys(labels)))
    return recipes, left_out


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


def is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def family(method: str) -> str:
    """The catalog's name of a method, whatever its λ."""
    name = ALIASES.get(method, method)
    return "sampa" if name.startswith("sampa-") else name


def own_settings(run: Run) -> dict[str, str]:
    """The settings that each method has its own value of."""
    return {**flat(used_hyperparameters(run)), "epochs": str(epochs_of(run))}


def shared_settings(run: Run) -> dict[str, str]:
    """The settings that are the same for all methods of a recipe, unless someone changed them."""
    return flat({k: v for k, v in run.as_json().items() if k not in OWN_FIELDS})


# ---- variants --------------------------------------------------------------------------------


def _distinct(records: Sequence[FinishedRun], left_out: list[LeftOut]) -> list[FinishedRun]:
    """Each run once: one that was made twice is no further evidence."""
    kept: dict[tuple[object, ...], FinishedRun] = {}
    for record in records:
        run = record.run
        settings = *shared_settings(run).items(), *own_settings(run).items()
        first = kept.setdefault((run.name, run.method, run.seed, settings), record)
        if first is not record:
            left_out.append(LeftOut(record.place, f"the same run as {first.place}"))
    return list(kept.values())


def _comparable(records: list[FinishedRun], left_out: list[LeftOut]) -> list[FinishedRun]:
    metric = next(iter(records[0].result.test))
    reason = f"no test {metric}, which other runs of {records[0].run.name} have"
    left_out += [LeftOut(r.place, reason) for r in records if metric not in r.result.test]
    return [record for record in records if metric in record.result.test]


def _strange_paper(recipe: Recipe) -> str:
    """Why published values cannot stand beside ours; empty if they can, or if there are none."""
    papers = [record.paper for record in recipe.runs if record.paper]
    if not papers or any(papers[0].metric in record.result.test for record in recipe.runs):
        return ""
    return f"paper.json is about {papers[0].metric}, which the runs do not report"


def _recipe(records: list[FinishedRun], baseline: str | None) -> Recipe:
    labelled = list(zip(_labels(records), records, strict=True))
    labelled.sort(key=lambda pair: _order(pair[1].run, pair[0]))
    by_label: dict[str, list[FinishedRun]] = {}
    for label, record in labelled:
        by_label.setdefault(label, []).append(record)
    variants = tuple(
        Variant(label, look, used_hyperparameters(found[0].run), tuple(found))
        for look, (label, found) in enumerate(by_label.items())
    )
    chosen = [v for v in variants if baseline in (v.label, v.method)]
    first, metric = records[0].run, next(iter(records[0].result.test))
    return Recipe(first.name, first.about, metric, variants, (chosen or variants)[0])


def _labels(records: Sequence[FinishedRun]) -> list[str]:
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
    lam = used_hyperparameters(run).get("lam")
    place = known.index(name) if name in known else len(known)
    return place, lam if is_number(lam) else 0.0, label, run.seed
