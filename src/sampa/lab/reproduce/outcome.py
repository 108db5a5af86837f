"""Outcomes: what an experiment gave, the paper's values beside ours; kept as results.json."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from sampa.lab.reproduce.paper import Published, Value
from sampa.lab.reproduce.plan import AVERAGE, Scale
from sampa.lab.training.records import numbers
from sampa.lab.training.tables import Grid, Spread, paired_difference, spread


@dataclass(frozen=True)
class Entry:
    """One entry of a table: our values by seed (or by round), and the paper's.

    Attributes:
        kind: What stands for them: the mean, or the median where single values may be far off. A
            count is exact: it has no spread, and its differences need no test.
    """

    row: str
    column: str
    values: dict[int, float]
    paper: Value | None = None
    kind: Literal["mean", "median", "count"] = "mean"

    @property
    def ours(self) -> Spread:
        values = list(self.values.values())
        found = spread(values)
        return replace(found, mean=statistics.median(values)) if self.kind == "median" else found

    @property
    def difference(self) -> float | None:
        """Ours less the paper's."""
        return None if self.paper is None else self.ours.mean - self.paper.mean


@dataclass(frozen=True)
class Comparison:
    """Two columns on the same seeds, and what the paper's means say about them."""

    row: str
    column: str
    baseline: str
    ours: Spread
    paper: float | None

    @property
    def is_sure(self) -> bool:
        """Whether our difference is larger than chance allows."""
        return self.ours.is_sure

    @property
    def verdict(self) -> str:
        """Whether the order is the paper's."""
        if not self.is_sure:
            return "too small to tell"
        if self.paper is None:
            return "above" if self.ours.mean > 0 else "below"
        return "as in the paper" if self.ours.mean * self.paper > 0 else "not as in the paper"


@dataclass(frozen=True)
class Line:
    """A named series; `low` and `high` are the band around it."""

    label: str
    x: list[float]
    y: list[float]
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Chart:
    """A picture as data.

    Attributes:
        name: Of its files.
        note: What one must know to read it.
        kind: Lines; bars (one value a line, named by its label) or intervals around values, both
            with the paper's as a second value; or points with their labels.
    """

    name: str
    title: str
    x_label: str
    y_label: str
    lines: list[Line]
    note: str = ""
    kind: Literal["lines", "bars", "intervals", "points"] = "lines"
    log_y: bool = False
    log_x: bool = False


@dataclass(frozen=True)
class Outcome:
    """Everything that an experiment gave.

    Attributes:
        about: The conditions in short, for the heading.
        label: The paper's label of the table or figure.
        claim: What the paper says about a figure.
        unit: Of the values, and what stands for them.
        decimals: How many are shown.
        pairs: Columns that are compared on the same seeds.
        facts: Sentences with measured numbers.
        tuning: By name: what was chosen, and the validation scores of the grid.
        conditions: Commit, versions and machine of the runs.
    """

    id: str
    title: str
    scale: Scale
    about: str
    label: str
    claim: str = ""
    unit: str = ""
    decimals: int = 2
    entries: tuple[Entry, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()
    charts: tuple[Chart, ...] = ()
    facts: tuple[str, ...] = ()
    tuning: dict[str, Any] = field(default_factory=dict)
    conditions: dict[str, Any] = field(default_factory=dict)

    def rows(self) -> list[str]:
        return list(dict.fromkeys(entry.row for entry in self.entries))

    def comparisons(self) -> list[Comparison]:
        """Every pair in every row that has both."""
        found = [self._compared(row, *pair) for row in self.rows() for pair in self.pairs]
        return [comparison for comparison in found if comparison is not None]

    def _compared(self, row: str, column: str, baseline: str) -> Comparison | None:
        entries = {e.column: e for e in self.entries if e.row == row and e.kind != "count"}
        grid: Grid = {
            name: {seed: {"value": value} for seed, value in entry.values.items()}
            for name, entry in entries.items()
        }
        ours = paired_difference(grid, column, baseline, "value")
        if ours is None:
            return None
        papers = [entries[name].paper for name in (column, baseline)]
        both = None if papers[0] is None or papers[1] is None else papers[0].mean - papers[1].mean
        return Comparison(row, column, baseline, ours, both)

    # ---- JSON --------------------------------------------------------------------------------

    def as_json(self) -> dict[str, Any]:
        """With the summaries, for those who read the file without us."""
        return {
            **asdict(self),
            "entries": [{**asdict(e), **_summary(e)} for e in self.entries],
            "comparisons": [_compared(c) for c in self.comparisons()],
        }

    @staticmethod
    def from_json(values: dict[str, Any]) -> Outcome:
        """The outcome that `as_json` describes.

        Raises:
            ValueError: If something is missing or strange.
        """
        try:
            plain = {k: v for k, v in values.items() if k != "comparisons"}
            plain["entries"] = tuple(_entry(e) for e in values["entries"])
            plain["pairs"] = tuple((a, b) for a, b in values["pairs"])
            plain["facts"] = tuple(values["facts"])
            plain["charts"] = tuple(_chart(c) for c in values["charts"])
            return Outcome(**plain)
        except (KeyError, TypeError) as error:
            raise ValueError(
                f"results.json must be as sampa reproduce writes it: {error}"
            ) from error


@dataclass(frozen=True)
class Recorded:
    """An outcome as it was kept, with what was said about it by hand (Markdown)."""

    outcome: Outcome
    notes: str = ""


def with_average(entries: Sequence[Entry], published: Published) -> tuple[Entry, ...]:
    """The entries and, for each column, the mean over the rows, seed by seed."""
    found = list(entries)
    for column in dict.fromkeys(entry.column for entry in entries):
        parts = [entry.values for entry in entries if entry.column == column]
        common = sorted(set.intersection(*[set(values) for values in parts]))
        mean = {seed: statistics.fmean(values[seed] for values in parts) for seed in common}
        found.append(Entry(AVERAGE, column, mean, published.value(AVERAGE, column)))
    return tuple(found)


def _summary(entry: Entry) -> dict[str, Any]:
    return {"ours": numbers(entry.ours), "difference": entry.difference}


def _compared(c: Comparison) -> dict[str, Any]:
    plain = {"row": c.row, "column": c.column, "baseline": c.baseline, "paper": c.paper}
    return {**plain, "ours": numbers(c.ours), "verdict": c.verdict}


def _entry(values: dict[str, Any]) -> Entry:
    paper = values["paper"]
    by_seed = {int(seed): float(value) for seed, value in values["values"].items()}
    known = paper and Value(**paper)
    return Entry(values["row"], values["column"], by_seed, known, values.get("kind", "mean"))


def _chart(values: dict[str, Any]) -> Chart:
    chart = Chart(**values)
    return replace(chart, lines=[Line(**line) for line in values["lines"]])
