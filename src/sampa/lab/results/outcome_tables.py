"""The tables of an outcome, and of methods that were compared."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from sampa.lab.results.outcome import Outcome, RunResult, compared, entry_of
from sampa.lab.results.paper import SCALES, Value
from sampa.lab.results.summary import plus_minus
from sampa.lab.results.table import ABSENT, Cell, Table, difference, mean, number_cell, row, seconds

UNSURE = (
    "± is the 95 % interval of one difference (Student's t). The order is told where the p value "
    "of the paired t test, corrected for all comparisons of the table (Holm), is below 0.05; else "
    "the difference is too small to tell."
)


def scale_line(outcome: Outcome) -> str:
    """What every heading says: the scale, the data, the network and the epochs."""
    return f"Scale: {SCALES[outcome.scale]}. {outcome.about}."


def value_table(outcome: Outcome) -> Table:
    """The paper's values beside ours."""
    digits = outcome.decimals
    rows = tuple(
        row(
            *(e.row, e.column, paper_cell(e.paper), mean(e.ours, digits), e.ours.n),
            number_cell(e.difference, f"+.{digits}f"),
        )
        for e in outcome.entries
    )
    columns = ("", "method", "paper", "ours", "n", "ours − paper")
    return Table(f"Results of {outcome.id}", columns, rows, (f"Ours: {outcome.unit}.",))


def paper_cell(value: Value | None) -> Cell:
    """A published value as it is printed."""
    if value is None:
        return ABSENT
    if value.std is not None:
        return Cell(plus_minus(value.mean, value.std), value.mean)
    return number_cell(value.mean, "g" if value.decimals is None else f".{value.decimals}f")


def difference_table(outcome: Outcome) -> Table:
    """Differences between methods on the same seeds."""
    digits = outcome.decimals
    rows = tuple(
        row(
            *(c.row, c.pair, number_cell(c.paper, f"+.{digits}f")),
            *(difference(c.ours, digits), c.ours.n, c.verdict),
        )
        for c in outcome.comparisons()
    )
    columns = ("", "compared", "paper", "ours, paired by seed ± 95 %", "n", "order")
    return Table(f"Differences of {outcome.id}", columns, rows, (UNSURE,))


def method_table(
    title: str,
    results: Mapping[str, Mapping[int, RunResult]],
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
        took = seconds(statistics.fmean(run.seconds for run in runs.values()))
        epochs = _epochs([run.best_epoch + 1 for run in runs.values() if run.best_epoch >= 0])
        gap = difference(None if comparison is None else comparison.ours)
        rows.append(row(name, len(runs), mean(entries[name].ours), gap, took, epochs))
    columns = ("method", "n", f"test {metric}", f"against {baseline} ± 95 %", "seconds")
    if not with_epochs:
        return Table(title, columns, tuple(cells[:-1] for cells in rows))
    return Table(title, (*columns, "best epoch"), tuple(rows))


def _epochs(known: Sequence[int]) -> Cell:
    """From the first to the last, sorted by their mean."""
    ends = dict.fromkeys([min(known, default=0), max(known, default=0)])
    return Cell("–".join(map(str, ends)), statistics.fmean(known)) if known else ABSENT
