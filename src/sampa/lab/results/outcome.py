"""The model of results: runs, entries of tables, comparisons, and outcomes of experiments.

A run gives a result. An entry is one method in one row of a table: a value for each seed, and the
paper's. A comparison is two entries on the same seeds. An outcome is all of it for one experiment
of the paper, kept as results.json.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from sampa.lab.conditions import Conditions
from sampa.lab.files import read_json, read_text
from sampa.lab.results.charts import Chart
from sampa.lab.results.paper import Published, Scale, Value
from sampa.lab.results.summary import LEVEL, Summary, holm, paired, summarize

AVERAGE = "Average"  # the row that is the mean of the others
RESULTS, NOTES = "results.json", "notes.md"  # notes are by hand: words about results, no numbers


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """What came out of a run, as result.json has it.

    Attributes:
        test: Test scores of the model that the run reports; the first is the one that counts.
        test_last: Those of the last model.
        train_accuracy: Percent of the training labels, wrong ones included, that the last model
            gives; None where it is not measured.
        best_epoch: The epoch with the best validation score, counted from 0; -1 for none ...
        best_validation: ... and that score.
        seconds: Time spent, over all sessions.
        core_seconds: Processor time of the first process; 0 where it was not noted, or where
            another device computes.
        updates: Updates made.
        limited: Whether it stopped before its end, as it was told to.
    """

    test: dict[str, float]
    test_last: dict[str, float] = field(default_factory=dict)
    train_accuracy: float | None = None
    best_epoch: int = -1
    best_validation: float = math.nan
    seconds: float
    core_seconds: float = 0.0
    updates: int = 0
    limited: bool = False

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> RunResult:
        """What a JSON object says, whatever else is in it."""
        return RunResult(**{f.name: values[f.name] for f in fields(RunResult) if f.name in values})


@dataclass(frozen=True)
class Entry:
    """One entry of a table: our values by seed (or by round), and the paper's.

    Attributes:
        column: Most often the method.
        kind: What stands for them: the mean, or the median where single values may be far off. A
            count is exact: it has no spread, and its differences need no test.
    """

    row: str
    column: str
    values: dict[int, float]
    paper: Value | None = None
    kind: Literal["mean", "median", "count"] = "mean"

    @property
    def ours(self) -> Summary:
        values = list(self.values.values())
        found = summarize(values)
        return replace(found, mean=statistics.median(values)) if self.kind == "median" else found

    @property
    def difference(self) -> float | None:
        """Ours less the paper's."""
        return None if self.paper is None else self.ours.mean - self.paper.mean


def entry_of(metric: str, column: str, runs: Mapping[int, RunResult]) -> Entry:
    """A metric of some runs, by seed."""
    return Entry(f"test {metric}", column, {seed: run.test[metric] for seed, run in runs.items()})


@dataclass(frozen=True)
class Comparison:
    """Two columns on the same seeds, and what the paper's means say about them.

    Attributes:
        ours: The differences, paired by seed.
        paper: The difference of the paper's means.
        p: Of the paired t test, corrected for the number of comparisons in the table.
    """

    row: str
    column: str
    baseline: str
    ours: Summary
    paper: float | None
    p: float = 1.0

    @property
    def pair(self) -> str:
        return f"{self.column} − {self.baseline}"

    @property
    def verdict(self) -> str:
        """Whether the order is the paper's."""
        if self.p >= 1 - LEVEL:
            return "too small to tell"
        if self.paper is None:
            return "above" if self.ours.mean > 0 else "below"
        return "as in the paper" if self.ours.mean * self.paper > 0 else "not as in the paper"


def compared(entry: Entry, baseline: Entry) -> Comparison | None:
    """Two entries of a row on the seeds that both have; None without any, or of one with itself."""
    ours = paired(entry.values, baseline.values)
    if ours is None or entry.column == baseline.column:
        return None
    paper = None
    if entry.paper is not None and baseline.paper is not None:
        paper = entry.paper.mean - baseline.paper.mean
    return Comparison(entry.row, entry.column, baseline.column, ours, paper, ours.p_value)


@dataclass(frozen=True)
class Choice:
    """What tuning chose.

    Attributes:
        lr: The learning rate of all methods.
        rho: SAM's; that of others stands to it as in the paper, ...
        rhos: ... but for those that a ρ of their own was chosen for.
    """

    lr: float
    rho: float
    rhos: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Tuned:
    """A choice with the validation scores it rests on, by run."""

    choice: Choice
    scores: dict[str, float]


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
        tuning: By name: what was chosen, and from which scores.
        conditions: Commit, versions and machine of the runs.
        command: What repeats it elsewhere.
        notes: Words by hand that are kept beside it (Markdown).
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
    tuning: dict[str, Tuned] = field(default_factory=dict)
    conditions: Conditions = field(default_factory=Conditions)
    command: str = ""
    notes: str = ""

    @property
    def heading(self) -> str:
        return f"{self.id}: {self.title}"

    @property
    def run_prefix(self) -> str:
        """What the names of its runs begin with, unless they are the paper's recipes."""
        return f"{self.id}-{self.scale}: "

    def rows(self) -> list[str]:
        return list(dict.fromkeys(entry.row for entry in self.entries))

    def comparisons(self) -> list[Comparison]:
        """Every pair in every row that has both; counts are exact and need no test.

        Of many comparisons some differ by chance: their p values are corrected (Holm).
        """
        tested = {(e.row, e.column): e for e in self.entries if e.kind != "count"}
        found = [
            compared(tested[row, column], tested[row, baseline])
            for row in self.rows()
            for column, baseline in self.pairs
            if (row, column) in tested and (row, baseline) in tested
        ]
        tests = [comparison for comparison in found if comparison is not None]
        corrected = holm([comparison.ours.p_value for comparison in tests])
        return [replace(c, p=p) for c, p in zip(tests, corrected, strict=True)]

    def as_json(self) -> dict[str, Any]:
        """With the summaries, for those who read the file without us; the notes are not in it."""
        values = asdict(self)
        del values["notes"]
        values["conditions"] = self.conditions.values
        values["entries"] = [
            {**asdict(e), "ours": e.ours.as_json(), "difference": e.difference}
            for e in self.entries
        ]
        values["comparisons"] = [
            {**asdict(c), "ours": c.ours.as_json(), "verdict": c.verdict}
            for c in self.comparisons()
        ]
        return values

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
            plain["charts"] = tuple(Chart.from_json(c) for c in values["charts"])
            plain["conditions"] = Conditions.from_json(values.get("conditions", {}))
            plain["tuning"] = {
                name: Tuned(Choice(**tuned["choice"]), tuned["scores"])
                for name, tuned in values["tuning"].items()
            }
            return Outcome(**plain)
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(
                f"results.json must be as sampa reproduce writes it: {error}"
            ) from error


def _entry(values: dict[str, Any]) -> Entry:
    paper = values["paper"]
    by_seed = {int(seed): float(value) for seed, value in values["values"].items()}
    known = paper and Value(**paper)
    return Entry(values["row"], values["column"], by_seed, known, values.get("kind", "mean"))


def read_outcome(file: Path) -> Outcome | None:
    """The outcome in a results.json, with the notes beside it; None if it is of `sampa compare`.

    Raises:
        ValueError: If the file is not as one of the commands writes it.
        OSError: If it cannot be read.
    """
    try:
        saved = read_json(file)
    except ValueError as error:
        raise ValueError(f"{file.name} is not readable: {error.__cause__ or error}") from error
    if not isinstance(saved, dict) or "entries" not in saved:
        return None
    notes = file.parent / NOTES
    text = read_text(notes) if notes.exists() else ""
    return replace(Outcome.from_json(saved), notes=text)


def with_average(entries: Sequence[Entry], published: Published) -> tuple[Entry, ...]:
    """The entries and, for each column, the mean over the rows, seed by seed."""
    found = list(entries)
    for column in dict.fromkeys(entry.column for entry in entries):
        parts = [entry.values for entry in entries if entry.column == column]
        common = sorted(set.intersection(*[set(values) for values in parts]))
        mean = {seed: statistics.fmean(values[seed] for values in parts) for seed in common}
        found.append(Entry(AVERAGE, column, mean, published.value(AVERAGE, column)))
    return tuple(found)
