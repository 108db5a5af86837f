"""The tables of an outcome, and of methods that were compared."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from sampa.lab.results.outcome import Comparison, Entry, Outcome, RunResult, compared, entry_of
from sampa.lab.results.paper import Value
from sampa.lab.results.table import (
    ABSENT,
    Cell,
    Estimate,
    Number,
    Range,
    Table,
    Words,
    difference,
    mean,
    seconds,
)

SCALE_NAMES = {
    "paper": "the paper's settings",
    "cpu": "reduced to two CPU cores",
    "smoke": "a test",
}
UNSURE = "A difference whose 95 % interval (Student's t) reaches 0 is too small to tell."


def scale_line(outcome: Outcome) -> str:
    """What every heading says: the scale, the data, the network and the epochs."""
    return f"Scale: {SCALE_NAMES[outcome.scale]}. {outcome.about}."


def value_table(outcome: Outcome) -> Table:
    """The paper's values beside ours."""
    return Table(
        title=f"Results of {outcome.id}",
        columns=("", "method", "paper", "ours", "n", "ours − paper"),
        rows=tuple(_value_row(entry, outcome.decimals) for entry in outcome.entries),
        notes=(f"Ours: {outcome.unit}.",),
    )


def _value_row(entry: Entry, decimals: int) -> tuple[Cell, ...]:
    gap = entry.difference
    return (
        Words(entry.row),
        Words(entry.column),
        paper_cell(entry.paper),
        mean(entry.ours, decimals),
        Number(entry.ours.n, "d"),
        ABSENT if gap is None else Number(gap, f"+.{decimals}f"),
    )


def paper_cell(value: Value | None) -> Cell:
    """A published value as it is printed."""
    if value is None:
        return ABSENT
    if value.std is not None:
        return Estimate(value.mean, value.std)
    return Number(value.mean, "g" if value.decimals is None else f".{value.decimals}f")


def difference_table(outcome: Outcome) -> Table:
    """Differences between methods on the same seeds."""
    return Table(
        title=f"Differences of {outcome.id}",
        columns=("", "compared", "paper", "ours, paired by seed ± 95 %", "n", "order"),
        rows=tuple(_difference_row(c, outcome.decimals) for c in outcome.comparisons()),
        notes=(UNSURE,),
    )


def _difference_row(c: Comparison, decimals: int) -> tuple[Cell, ...]:
    return (
        Words(c.row),
        Words(c.pair),
        ABSENT if c.paper is None else Number(c.paper, f"+.{decimals}f"),
        difference(c.ours, decimals),
        Number(c.ours.n, "d"),
        Words(c.verdict),
    )


def method_table(
    title: str,
    results: Mapping[str, Sequence[RunResult]],
    metric: str,
    baseline: str,
    *,
    with_epochs: bool = False,
) -> Table:
    """Every method with its test metric, its difference to the baseline, and what it took."""
    entries = {name: entry_of(metric, name, runs) for name, runs in results.items()}
    rows: list[tuple[Cell, ...]] = []
    for name, runs in results.items():
        comparison = compared(entries[name], entries[baseline])
        rows.append(
            (
                Words(name),
                Number(len(runs), "d"),
                mean(entries[name].ours),
                ABSENT if comparison is None else difference(comparison.ours),
                seconds(statistics.fmean(run.seconds for run in runs)),
                _epochs([run.best_epoch for run in runs if run.best_epoch]),
            )
        )
    columns = ("method", "n", f"test {metric}", f"against {baseline} ± 95 %", "seconds")
    if not with_epochs:
        return Table(title, columns, tuple(row[:-1] for row in rows))
    return Table(title, (*columns, "best epoch"), tuple(rows))


def _epochs(known: Sequence[int]) -> Cell:
    return Range(min(known), max(known), statistics.fmean(known)) if known else ABSENT
