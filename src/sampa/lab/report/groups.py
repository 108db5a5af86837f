"""Groups: the runs of a recipe, and its variants, which differ in more than the seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sampa.lab.report.records import FinishedRun, LeftOut
from sampa.lab.results.outcome import Comparison, Entry, RunResult, compared, entry_of
from sampa.lab.training.variants import (
    labels,
    order,
    own_settings,
    shared_settings,
    used_hyperparameters,
)
from sampa.messages import unknown


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
    known = [name for recipe in recipes for v in recipe.variants for name in (v.label, v.method)]
    if baseline is not None and recipes and baseline not in known:
        raise ValueError(unknown("baseline", baseline, dict.fromkeys(known)))
    return recipes, left_out


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
    labelled = list(zip(labels([r.run for r in records]), records, strict=True))
    labelled.sort(key=lambda pair: order(pair[1].run, pair[0]))
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
