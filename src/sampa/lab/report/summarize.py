"""From recipes to sentences and tables. Numbers come from `sampa.lab.training.tables`."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sampa.lab.report.groups import Recipe, Variant
from sampa.lab.training.tables import Spread, paired_difference, spread


@dataclass(frozen=True)
class Cell:
    """One entry of a table.

    Attributes:
        text: What is shown.
        value: What it is sorted by; None goes last.
        unsure: Whether the number is smaller than what its error allows to tell.
    """

    text: str
    value: float | None = None
    unsure: bool = False


@dataclass(frozen=True)
class Row:
    variant: Variant
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    """A table whose first column is the variant; the others are numbers (or a run's folder)."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    caption: str
    kind: Literal["results", "paper", "runs"] = "results"

    @property
    def has_unsure(self) -> bool:
        return any(cell.unsure for row in self.rows for cell in row.cells)


# ---- the sentence ----------------------------------------------------------------------------


def headline(recipe: Recipe) -> str:
    """Which variant is best, by how much, and whether that can be told."""
    ranked = sorted(recipe.variants, key=lambda v: scores(recipe, v).mean, reverse=True)
    best, baseline = ranked[0], recipe.baseline
    result = f"{signs(str(scores(recipe, best)))} (n = {len(best.records)})"
    if len(ranked) == 1:
        return f"Test {recipe.metric} of {best.label}: {result}. Nothing to compare it with."
    start = f"Highest mean test {recipe.metric}: {best.label}"
    if best is not baseline:
        return f"{start}, {result}. Against {baseline.label}{_judged(recipe, best)}."
    second = ranked[1]
    return f"{start}, the baseline, {result}. Next is {second.label}{_judged(recipe, second)}."


def _judged(recipe: Recipe, variant: Variant) -> str:
    """A variant's difference to the baseline, and what it is worth."""
    found = difference(recipe, variant)
    if found is None:
        return " there is no difference to give: no seed in common"
    if found.n == 1:
        return f", on the same seed: {difference_text(found)}; one seed is too few to tell"
    text = f", on the same {found.n} seeds: {difference_text(found)} (s.e.)"
    if found.mean == found.std == 0:
        return f"{text}, no difference on any seed"
    if not found.is_sure:
        return f"{text}, under two standard errors: too few seeds to tell them apart"
    rough = "; two seeds give only a rough error" if found.n == 2 else ""
    return f"{text}, more than two standard errors{rough}"


# ---- tables ----------------------------------------------------------------------------------


def result_table(recipe: Recipe) -> Table:
    """Every variant with its test metric, its difference to the baseline, and what it took."""
    which = {v.records[0].run.select for v in recipe.variants}
    chosen = "the last epoch" if which == {"last"} else "the epoch that was best on validation"
    columns = (
        "n",
        f"test {recipe.metric}, mean ± std",
        f"against {recipe.baseline.label}, ± s.e.",
        "seconds",
        "best epoch",
    )
    return Table(
        columns=columns,
        rows=tuple(Row(v, _result_cells(recipe, v)) for v in recipe.variants),
        caption=f"Test results of the model of {chosen}; differences are paired by seed.",
    )


def _result_cells(recipe: Recipe, variant: Variant) -> tuple[Cell, ...]:
    score = scores(recipe, variant)
    seconds = statistics.fmean(record.seconds for record in variant.records)
    return (
        Cell(str(score.n), score.n),
        Cell(signs(str(score)), score.mean),
        _difference_cell(difference(recipe, variant)),
        Cell(duration(seconds), seconds),
        _epoch_cell([record.best_epoch for record in variant.records]),
    )


def paper_table(recipe: Recipe) -> Table | None:
    """The paper's values beside ours, if the runs came with any."""
    paper = next((record.paper for record in recipe.records if record.paper), None)
    if paper is None:
        return None
    rows: list[Row] = []
    for variant in recipe.variants:
        value = paper.values.get(variant.label, paper.values.get(variant.method))
        ours = [r.test[paper.metric] for r in variant.records if paper.metric in r.test]
        if value is not None and ours:
            rows.append(Row(variant, _paper_cells(spread(ours), value)))
    source = f" Source: {paper.source}." if paper.source else ""
    caption = f"Test {paper.metric}, mean ± std; the difference is ours minus the paper's.{source}"
    columns = ("paper", "ours", "difference")
    return Table(columns, tuple(rows), caption, "paper") if rows else None


def _paper_cells(ours: Spread, value: tuple[float, float | None]) -> tuple[Cell, ...]:
    mean, std = value
    theirs = f"{mean:.2f}" if std is None else f"{mean:.2f} ± {std:.2f}"
    gap = ours.mean - mean
    return (
        Cell(signs(theirs), mean),
        Cell(signs(str(ours)), ours.mean),
        Cell(signs(f"{gap:+.2f}"), gap),
    )


def _difference_cell(found: Spread | None) -> Cell:
    if found is None:
        return Cell("–")
    return Cell(difference_text(found), found.mean, unsure=not found.is_sure)


def _epoch_cell(epochs: Sequence[int]) -> Cell:
    known = [epoch for epoch in epochs if epoch > 0]
    if not known:
        return Cell("–")
    low, high = min(known), max(known)
    return Cell(f"{low}" if low == high else f"{low}–{high}", statistics.fmean(known))


# ---- numbers ---------------------------------------------------------------------------------


def scores(recipe: Recipe, variant: Variant) -> Spread:
    """The test metric of a variant over its seeds."""
    return spread([record.test[recipe.metric] for record in variant.records])


def difference(recipe: Recipe, variant: Variant) -> Spread | None:
    """How much better than the baseline, on the seeds that both have."""
    labels = variant.label, recipe.baseline.label
    return paired_difference(recipe.grid(), *labels, recipe.metric)


def difference_text(found: Spread) -> str:
    error = f" ± {found.standard_error:.2f}" if found.n > 1 else ""
    return signs(f"{found.mean:+.2f}{error}")


def duration(seconds: float) -> str:
    """Seconds, with one decimal where it matters."""
    if not math.isfinite(seconds):
        return "–"
    return f"{seconds:.1f}" if seconds < 100 else f"{seconds:,.0f}"


def signs(number: str) -> str:
    """A formatted number with a true minus sign."""
    return number.replace("-", "−")
