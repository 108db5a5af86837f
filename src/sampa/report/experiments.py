"""Experiments: the paper's tables and figures as the page shows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from sampa.report.conditions import Fact
from sampa.report.drawing import draw
from sampa.report.records import flat
from sampa.report.summarize import Cell, signs
from sampa.report.svg import figure, to_svg
from sampa.reproduce import render
from sampa.reproduce.outcome import Chart, Comparison, Entry, Outcome


@dataclass(frozen=True)
class Sheet:
    """A table of text whose cells know what they are sorted by."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    label: str


@dataclass(frozen=True)
class Picture:
    """A chart with its words."""

    title: str
    note: str
    description: str
    svg: Markup


@dataclass(frozen=True)
class ExperimentView:
    """One experiment's part of the page."""

    outcome: Outcome
    anchor: str
    heading: str
    about: str
    headline: str
    entries: Sheet
    compared: Sheet | None
    pictures: tuple[Picture, ...]
    conditions: tuple[Fact, ...]


def experiment_view(outcome: Outcome, anchor: str) -> ExperimentView:
    rows = tuple(_entry(entry, outcome.decimals) for entry in outcome.entries)
    compared = outcome.comparisons()
    lines = tuple(_comparison(c, outcome.decimals) for c in compared)
    return ExperimentView(
        outcome=outcome,
        anchor=anchor,
        heading=render.heading(outcome),
        about=render.conditions(outcome),
        headline=headline(outcome),
        entries=Sheet(render.HEAD, rows, f"Results of {outcome.id}"),
        compared=Sheet(render.PAIRED, lines, f"Differences of {outcome.id}") if compared else None,
        pictures=tuple(_picture(c, f"{anchor}-{i}") for i, c in enumerate(outcome.charts)),
        conditions=tuple(Fact(name, (text,)) for name, text in flat(outcome.conditions).items()),
    )


def headline(outcome: Outcome) -> str:
    """How the order of methods compares with the paper's, in one sentence."""
    verdicts = Counter(c.verdict for c in outcome.comparisons() if c.paper is not None)
    if not verdicts:
        return outcome.facts[0] if outcome.facts else f"In the paper: {outcome.claim}."
    parts = ", ".join(f"{n} {verdict}" for verdict, n in verdicts.most_common())
    return f"Differences that the paper prints too: {parts}."


def _entry(entry: Entry, decimals: int) -> tuple[Cell, ...]:
    row, column, paper, ours, n, difference = render.entry_cells(entry, decimals)
    theirs = None if entry.paper is None else entry.paper.mean
    return (
        Cell(row),
        Cell(column),
        Cell(signs(paper), theirs),
        Cell(signs(ours), entry.ours.mean),
        Cell(n, entry.ours.n),
        Cell(signs(difference), entry.difference),
    )


def _comparison(c: Comparison, decimals: int) -> tuple[Cell, ...]:
    row, compared, paper, ours, n, verdict = render.comparison_cells(c, decimals)
    return (
        Cell(row),
        Cell(compared),
        Cell(signs(paper), c.paper),
        Cell(signs(ours), c.ours.mean, unsure=not c.is_sure),
        Cell(n, c.ours.n),
        Cell(verdict),
    )


def _picture(chart: Chart, prefix: str) -> Picture:
    with figure():
        svg = to_svg(draw(chart), prefix)
    return Picture(chart.title, chart.note, _words(chart), Markup(svg))


def _words(chart: Chart) -> str:
    parts = [f"{line.label}: {_ends(line.y)}" for line in chart.lines]
    return f"{chart.y_label or chart.x_label}. {'; '.join(parts)}."


def _ends(values: Sequence[float]) -> str:
    first, last = signs(f"{values[0]:.4g}"), signs(f"{values[-1]:.4g}")
    return first if len(values) == 1 else f"{first} to {last}"
