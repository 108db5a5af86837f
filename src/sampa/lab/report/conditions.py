"""Conditions: under what the results of a recipe were obtained, as rows of text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from sampa.lab.report.groups import Recipe
from sampa.lab.report.records import Record, flat
from sampa.lab.report.summarize import Cell, Row, Table, duration, signs

SPEED = ("machine.", "threads", "processes")  # what seconds depend on
STEADY = 1.5  # ratio of a method's slowest run to its fastest, above which the machine was busy


@dataclass(frozen=True)
class Fact:
    """A name and its value; several values if the runs differ in it."""

    name: str
    values: tuple[str, ...]


def conditions(recipe: Recipe) -> list[Fact]:
    """Commit, versions, machine, threads and processes of all runs."""
    return [_fact(name, recipe.records) for name in _names(recipe.records)]


def settings(recipe: Recipe) -> list[Fact]:
    """The recipe's fields, and the methods' hyper-parameters."""
    runs = [flat(record.run.as_json()) for record in recipe.records]
    shown = [name for name in runs[0] if name.split(".")[0] not in HIDDEN]
    facts = [Fact(name, _counted([run.get(name, "none") for run in runs])) for name in shown]
    for variant in recipe.variants:
        text = ", ".join(f"{k} = {v}" for k, v in flat(variant.hyperparameters).items())
        facts.append(Fact(variant.label, (text or "no hyper-parameters",)))
    return facts


HIDDEN = ("name", "about", "method", "seed", "rho", "lam", "rhos", "method_options")


def mixed(recipe: Recipe) -> list[str]:
    """The conditions that are not the same for all runs."""
    return [fact.name for fact in conditions(recipe) if len(fact.values) > 1]


def time_caveat(recipe: Recipe) -> str:
    """Why the seconds of the runs should not be compared; empty if they may be."""
    if any(name.startswith(SPEED) for name in mixed(recipe)):
        return "The runs were made under different conditions: do not compare their seconds."
    seconds = [[record.seconds for record in variant.records] for variant in recipe.variants]
    if any(max(values) > STEADY * min(values) for values in seconds):
        return "Runs of one method differ much in seconds, as on a busy machine: do not compare."
    return ""


def run_table(recipe: Recipe) -> Table:
    """Every run by itself: what the means are made of."""
    return Table(
        columns=("seed", f"test {recipe.metric}", "seconds", "best epoch", "folder"),
        rows=tuple(
            Row(variant, _run_cells(recipe, record))
            for variant in recipe.variants
            for record in variant.records
        ),
        caption="Every run by itself.",
        kind="runs",
    )


def _run_cells(recipe: Recipe, record: Record) -> tuple[Cell, ...]:
    score = record.test[recipe.metric]
    return (
        Cell(str(record.run.seed), record.run.seed),
        Cell(signs(f"{score:.2f}"), score),
        Cell(duration(record.seconds), record.seconds),
        Cell(str(record.best_epoch or "–"), record.best_epoch or None),
        Cell(record.place),
    )


def _names(records: Sequence[Record]) -> list[str]:
    return list(dict.fromkeys(name for record in records for name in record.conditions))


def _fact(name: str, records: Sequence[Record]) -> Fact:
    return Fact(name, _counted([r.conditions.get(name, "not recorded") for r in records]))


def _counted(values: Sequence[str]) -> tuple[str, ...]:
    """The one value, or each with the number of runs that have it."""
    counts = Counter(values)
    if len(counts) == 1:
        return (values[0],)
    return tuple(f"{value} ({_runs(n)})" for value, n in counts.items())


def _runs(n: int) -> str:
    return "1 run" if n == 1 else f"{n} runs"
