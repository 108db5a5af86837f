"""Experiments: the paper's tables and figures as the page shows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from markupsafe import Markup

from sampa.lab.report.conditions import Fact
from sampa.lab.report.drawing import draw
from sampa.lab.report.notes import Block, blocks
from sampa.lab.report.records import flat
from sampa.lab.report.summarize import Cell, signs
from sampa.lab.report.svg import figure, to_svg
from sampa.lab.reproduce import render
from sampa.lab.reproduce.outcome import Chart, Comparison, Entry, Outcome, Recorded
from sampa.lab.reproduce.pictures import shown


@dataclass(frozen=True)
class Sheet:
    """A table of text whose cells know what they are sorted by."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    label: str
    kind: Literal["values", "compared"]


@dataclass(frozen=True)
class Picture:
    """A chart with its words."""

    title: str
    note: str
    description: str
    svg: Markup


@dataclass(frozen=True)
class Count:
    """How many differences have a verdict."""

    n: int
    verdict: str

    @property
    def kind(self) -> str:
        """As the style sheet names it."""
        kinds = {"as in the paper": "agrees", "not as in the paper": "differs"}
        return kinds.get(self.verdict, "open")


@dataclass(frozen=True)
class ExperimentView:
    """One experiment's part of the page.

    Attributes:
        verdicts: Of the differences that the paper prints too.
        finding: What came out, in one sentence; empty if the verdicts say it.
    """

    outcome: Outcome
    anchor: str
    heading: str
    about: str
    claim: str
    verdicts: tuple[Count, ...]
    finding: str
    entries: Sheet
    compared: Sheet | None
    pictures: tuple[Picture, ...]
    notes: tuple[Block, ...]
    conditions: tuple[Fact, ...]

    @property
    def has_paper(self) -> bool:
        """Whether the paper prints any of the values."""
        return any(entry.paper is not None for entry in self.outcome.entries)


def experiment_view(recorded: Recorded, anchor: str) -> ExperimentView:
    outcome = recorded.outcome
    rows = [_entry(entry, outcome.decimals) for entry in outcome.entries]
    compared = outcome.comparisons()
    lines = [_comparison(c, outcome.decimals) for c in compared]
    differences = _sheet(render.PAIRED, lines, f"Differences of {outcome.id}", "compared")
    verdicts = counts(compared)
    return ExperimentView(
        outcome=outcome,
        anchor=anchor,
        heading=render.heading(outcome),
        about=render.conditions(outcome),
        claim=sentence(outcome.claim),
        verdicts=verdicts,
        finding="" if verdicts else finding(outcome),
        entries=_sheet(render.HEAD, rows, f"Results of {outcome.id}", "values"),
        compared=differences if compared else None,
        pictures=tuple(_picture(c, f"{anchor}-{i}") for i, c in enumerate(shown(outcome))),
        notes=blocks(recorded.notes),
        conditions=(*_tunings(outcome.tuning), *_conditions(outcome)),
    )


# ---- in a few words --------------------------------------------------------------------------


def counts(compared: Sequence[Comparison]) -> tuple[Count, ...]:
    """How the order of methods compares with the paper's."""
    found = Counter(c.verdict for c in compared if c.paper is not None)
    order = ("as in the paper", "not as in the paper", "too small to tell")
    return tuple(Count(found[verdict], verdict) for verdict in order if found[verdict])


def finding(outcome: Outcome) -> str:
    """What came out where the paper prints no differences: a fact, a tally, or a value."""
    if outcome.facts:
        return outcome.facts[0]
    tallies: dict[str, Counter[str]] = {}
    for c in outcome.comparisons():
        tallies.setdefault(c.baseline, Counter())[c.verdict] += 1
    if tallies:
        parts = (f"against {name}: {_tally(found)}" for name, found in tallies.items())
        return sentence("; ".join(parts))
    beside = [entry for entry in outcome.entries if entry.paper and "SAMPa" in entry.column]
    chosen = (beside or list(outcome.entries))[-1:]
    return sentence("; ".join(_value(entry, outcome.decimals) for entry in chosen))


def _tally(found: Counter[str]) -> str:
    return ", ".join(f"{n} {verdict}" for verdict, n in found.most_common())


def _value(entry: Entry, decimals: int) -> str:
    value = f"{entry.row}, {entry.column}: {signs(render.plain(entry.ours, decimals))}"
    return value if entry.paper is None else f"{value}; in the paper {signs(str(entry.paper))}"


def sentence(text: str) -> str:
    """With a capital and a full stop; symbols and names keep their first letter."""
    if not text:
        return ""
    first = text.split()[0].rstrip(",:")
    is_word = first.isascii() and first.isalpha() and first.islower()
    capital = text[:1].upper() if is_word else text[:1]
    return f"{capital}{text[1:].rstrip('.')}."


# ---- tables ----------------------------------------------------------------------------------

EMPTY = ("", "–")


def _sheet(
    head: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    label: str,
    kind: Literal["values", "compared"],
) -> Sheet:
    """A table without the columns in which nothing is written."""
    kept = [i for i in range(len(head)) if any(row[i].text not in EMPTY for row in rows)]
    columns = tuple(head[i] for i in kept)
    return Sheet(columns, tuple(tuple(row[i] for i in kept) for row in rows), label, kind)


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


def _tunings(tuning: dict[str, Any]) -> list[Fact]:
    """What was chosen on held-back data, and from how many runs."""
    return [
        Fact(
            f"tuning: {name}",
            (
                f"learning rate {found['choice']['lr']:g} for all methods, "
                f"ρ = {found['choice']['rho']:g} for SAM; best of {len(found['scores'])} runs "
                "on held-back data",
            ),
        )
        for name, found in tuning.items()
    ]


def _conditions(outcome: Outcome) -> list[Fact]:
    return [Fact(name, (text,)) for name, text in flat(outcome.conditions).items()]


# ---- pictures --------------------------------------------------------------------------------


def _picture(chart: Chart, prefix: str) -> Picture:
    with figure():
        svg = to_svg(draw(chart), prefix)
    return Picture(chart.title, chart.note, _words(chart), Markup(svg))


def _words(chart: Chart) -> str:
    read = _with_paper if chart.kind in ("bars", "intervals") else _ends
    parts = [f"{line.label}: {read(line.y)}" for line in chart.lines]
    return f"{chart.y_label or chart.x_label}. {'; '.join(parts)}."


def _ends(values: Sequence[float]) -> str:
    first, last = signs(f"{values[0]:.4g}"), signs(f"{values[-1]:.4g}")
    return first if len(values) == 1 else f"{first} to {last}"


def _with_paper(values: Sequence[float]) -> str:
    ours, *paper = (signs(f"{value:.4g}") for value in values)
    return f"{ours}, in the paper {paper[0]}" if paper else ours
